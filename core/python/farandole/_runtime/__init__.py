"""Between Python and the compiled core: submission, staging, call sites, profilers, timelines, uncaught errors."""
