"""Language modeling: text, the task of predicting the next token, n-gram baselines, generation and scores."""
