"""`farandole report`: one page about a run from its timeline.

write opens files, trace reads their events, analysis judges, and page makes the HTML; the last three are pure.
"""
