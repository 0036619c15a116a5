"""Where the time of an epoch goes: to the disk, to decoding, to TensorFlow, or to the model::

    profile = Profile()
    stream = profile.stream(dataref.stream(shuffle=True, shuffle_seed=1))
    for batch in profile.watch(stream.batches(32)):
        train(batch)
    print(profile.report())

Importing this module imports no TensorFlow.
"""

from yogadl.profile._profile import Profile, Watched
from yogadl.profile._report import Report

__all__ = ["Profile", "Report", "Watched"]
