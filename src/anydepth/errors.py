"""The one exception for mistakes a user can mend."""


class UserError(Exception):
    """Something in the input is wrong. The message is one line that says what to do about it.

    The command line prints that line and exits with 2; a Python caller can catch it.
    """
