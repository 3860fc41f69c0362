"""Submissions: a climb of somebody's model in one folder, and how anybody verifies it."""
