"""BERT and its relatives: encoders, and heads for tasks of classification."""
