"""The service: a trained model that answers text, by an API that OpenAI's clients know."""
