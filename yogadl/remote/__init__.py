"""Reading the records of a version that lies in a bucket, or on a web server, without downloading
it first.

A reader asks for the bytes that it needs, each once: what arrives is kept in sparse files on the
local disk, which all processes of the machine share, and every record is compared with its checksum
whenever it is read from there. The order of a stream says what to ask for first.
"""
