"""What Farandole logs while something runs."""

import logging


class Logged(logging.Handler):
    """Keeps the lines that are logged while it is entered."""

    def __enter__(self):
        self.lines = []
        logging.getLogger("farandole").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("farandole").removeHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())
