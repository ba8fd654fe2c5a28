"""Do explanations find the features that matter? Problems where these are known."""
