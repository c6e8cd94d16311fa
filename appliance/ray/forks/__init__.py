"""Processes that Ray starts by a fork of one that has loaded the code of all roles."""
