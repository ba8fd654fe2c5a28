"""The paper's section 5.1: bias, variance and error of gradient estimators where the exact gradient
is known."""
