"""`farandole run --live` and `farandole live`: a page in the browser that shows what the ranks of this host do.

tails reads the flight recorders repeatedly, model makes frames of the results, server keeps the latest frames and
answers the browser, command connects these parts, and page/ is what the browser shows. metrics exports the same numbers
to a monitoring system, and figures to TensorBoard. model and metrics are pure.
"""
