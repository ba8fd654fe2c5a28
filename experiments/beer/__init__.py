"""Which words of a review explain its rating: section 5.3 of the paper, done right."""
