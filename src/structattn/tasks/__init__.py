"""What training and evaluation need of a task: batches, a loss, scores. A new one is a folder and a registry line."""
