"""`farandole run --live` and `farandole live`: a page in the browser that shows what the ranks of this host do.

tails reads the flight recorders again and again, model makes frames of what was read, server keeps the latest and
answers the browser, command puts them together, and page/ is what the browser shows. metrics has the same numbers for
a monitoring system, and figures for TensorBoard. model and metrics are pure.
"""
