"""What a backend has: operators, layouts, kernel layouts. Empty until layout conversion for targets."""
