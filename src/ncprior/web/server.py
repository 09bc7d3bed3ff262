"""The server: one process, which keeps no state that the database does not have."""

from collections.abc import Sequence
from importlib.util import find_spec

from ncprior.errors import UserError
from ncprior.terminal import remark


def serve(storage: str | None, *, host: str, port: int, hosts: Sequence[str], behind_tls: bool) -> None:
    """Serves until it is stopped.

    Args:
        storage: URL of the campaigns.
        host: Address to listen at.
        port: Port to listen at.
        hosts: Further names of this server.
        behind_tls: Whether a proxy in front encrypts.
    """
    if missing := [name for name in ("starlette", "uvicorn", "python_multipart") if find_spec(name) is None]:
        raise UserError(f"the page needs {', '.join(missing)}; install it: pip install 'ncprior[campaigns]'")
    if not 0 < port < 65_536:
        raise UserError(f"--port {port}: give a number from 1 to 65535")
    import uvicorn

    from ncprior.campaigns.database import Database
    from ncprior.campaigns.people import everybody
    from ncprior.web.app import LOOPBACK, create_app

    database = Database(storage)
    local = host in LOOPBACK
    if not local and not behind_tls:
        remark(
            "ncprior: tokens and labels travel unencrypted to other machines; put a proxy with TLS in front, and add "
            "--behind-tls"
        )
    if not any(one.has_token for one in database.read(everybody)):
        remark("ncprior: nobody has a token yet; ncprior campaign token add NAME gives one")
    names = {*LOOPBACK, *hosts, *(() if host in ("0.0.0.0", "::") else (host,))}
    remark(f"ncprior: http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C ends it)")
    app = create_app(database, hosts=names, behind_tls=behind_tls)
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=30, limit_concurrency=500, backlog=1_024,
    )  # fmt: skip
    server = uvicorn.Server(config)
    try:
        server.run()
    except SystemExit as error:
        if not server.started:  # it has logged why
            raise UserError(f"cannot listen at {host}:{port}; choose another --port") from error
        raise
    finally:
        database.close()
