"""Fixed and slow points under constant input."""
