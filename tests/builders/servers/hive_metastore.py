"""A Hive metastore that answers from memory, by Thrift.

with Metastore() as metastore:
    metastore.add("ns", "t", metadata_location=str(table.save()))
    tamis.open("ns.t", catalog={"type": "hive", "uri": metastore.uri})
"""

from __future__ import annotations

from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

from hive_metastore.ThriftHiveMetastore import Processor
from hive_metastore.ttypes import NoSuchObjectException, StorageDescriptor, Table
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport


class Metastore:
    """Serves the calls that find a table. Each connection has its own thread."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], Table] = {}

    def add(self, database: str, name: str, table_type: str = "ICEBERG", **parameters: str) -> None:
        merged = {"table_type": table_type, **parameters}
        self._tables[database, name] = Table(name, database, parameters=merged, sd=StorageDescriptor())

    def __enter__(self) -> Metastore:
        processor = Processor(self)

        class Connection(BaseRequestHandler):
            def handle(self) -> None:
                socket = TSocket.TSocket()
                socket.setHandle(self.request)
                protocol = TBinaryProtocol.TBinaryProtocol(TTransport.TBufferedTransport(socket))
                with suppress(TTransport.TTransportException):  # the client went away
                    while True:
                        processor.process(protocol, protocol)

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Connection)
        self._server.daemon_threads = True
        self.uri = f"thrift://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # --- What clients call, under the names that Thrift gives ---------------------------------------------------------

    def get_table(self, dbname: str, tbl_name: str) -> Table:
        if (dbname, tbl_name) not in self._tables:
            raise NoSuchObjectException(f"{dbname}.{tbl_name} table not found")
        return self._tables[dbname, tbl_name]

    def get_all_tables(self, db_name: str) -> list[str]:
        return [name for database, name in self._tables if database == db_name]

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Table]:
        return [self._tables[dbname, name] for name in tbl_names]
