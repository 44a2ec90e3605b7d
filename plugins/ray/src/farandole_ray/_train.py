"""A back end for Ray Train: its workers are the ranks."""


class FarandoleConfig: ...
