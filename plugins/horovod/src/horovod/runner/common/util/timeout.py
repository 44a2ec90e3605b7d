"""The error for what did not happen in time."""


class TimeoutException(TimeoutError):
    """Something was not there in time."""
