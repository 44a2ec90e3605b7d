"""`farandole inspect`: what the ranks of a job wait for, from their flight recorders and from /proc.

records reads a file of a recorder, jobs finds those of this user, processes says what a process does, diagnosis makes
one sentence of it all, stacks asks py-spy, and show prints. records, diagnosis and show are pure.
"""
