"""What is on this machine of versions that are far away: bytes, who has claimed them, room, notes.

All of it is shared by the processes of the machine, and holds however one of them ends.
"""
