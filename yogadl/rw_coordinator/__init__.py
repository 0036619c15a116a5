"""A server of read and write locks that any number of machines share, and its client.

websockets, which both need, is imported when the first server or client is made::

    pip install 'yogadl[coordinator]'
"""

from yogadl.rw_coordinator import communication_protocol as communication_protocol
from yogadl.rw_coordinator._client import RwCoordinatorClient as RwCoordinatorClient
from yogadl.rw_coordinator._held_lock import HeldLock as HeldLock
from yogadl.rw_coordinator._server import RwCoordinatorServer as RwCoordinatorServer
