"""What users see of a running or finished job: inspect, the live page and metrics, the report, timelines, doctor.

records      a file of a rank's flight recorder -> Recording; pure
jobs, tails  the recorders of this user, read once, and again and again; processes has what /proc says
diagnosis    the ranks at one moment -> who holds the job up; pure
pace, stragglers, slow_links, sight, watch    the launcher's watch over a job that runs
aftermath    what a rank that died did last
inspect, show, stacks    `farandole inspect`
live         the page in the browser, metrics, and scalars for TensorBoard
timeline, report    traces: merged, and analysed
waits        the time in which ranks wait for one of them; pure
doctor       checks of this machine, or of several
"""
