"""The drain: it empties every backlog queue once, and proves it empty."""
