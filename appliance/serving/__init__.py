"""Serve tokens: what runs next, how a token is drawn, and the thread that does both."""
