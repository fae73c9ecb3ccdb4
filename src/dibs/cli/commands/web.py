"""``dibs web``: the dashboard."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, KEYS, PORT
from dibs.db.grants import taken
from dibs.errors import ConnectionLost, InvalidArgument, NotPermitted
from dibs.operation import ACTIONS

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from dibs.web import Authorize
    from dibs.web.secrets import SecretFile

CROWD = 1000
"""The number of connections that may be open at once; others get a 503."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=PORT, default=8321, show_default=True, help="The port to listen on; 0 takes a free one.")
@click.option("--prefix", default="", help="The path it is served under by a proxy, such as /dibs.")
@click.option("--write", is_flag=True, help="Also allow changes: cancel, retry, pause and so on.")
@click.option("--password-file", type=FILE, help="Ask for a name and a password of this file; lines of NAME:PASSWORD.")
@click.option("--token-file", type=FILE, help="Accept the tokens of this file, sent as Authorization: Bearer.")
@click.option("--user-header", metavar="NAME", help="Let in anyone whom a trusted proxy names in this header.")
@click.option(
    "--trusted-proxy", multiple=True, metavar="ADDRESS", help="Your proxy, by its address or network; may be repeated."
)
@click.option("--mask", type=KEYS, default="", help="Cover the values of these keys: password,token,card.")
@click.option("--hide-payloads", is_flag=True, help="Cover payloads, results and headers whole.")
@click.option("--timeout", default=5.0, show_default=True, help="Seconds a statement may take.")
@click.option("--target", type=DURATION, default="5m", show_default=True, help="How soon a due job should be done.")
@pass_session
def web(session: Session, /, host: str, port: int, prefix: str, **options: Any) -> int:
    """Serve the dashboard, on this machine alone and read-only unless told otherwise.

    Elsewhere than on 127.0.0.1 it needs to know who asks: --password-file, --token-file or --user-header.
    """
    from dibs.web.app import app, under

    ways = authorize(session, host, options)
    dsn = session.find()
    check_roles(session, dsn, options["write"])
    dashboard = app(
        dsn,
        authorize=ways,
        mask=options["mask"],
        hide_payloads=options["hide_payloads"],
        timeout=options["timeout"],
        target=options["target"].total_seconds(),
    )
    with listening(host, port) as listener:
        tell(session, listener, prefix, options["write"])
        serve(under(prefix, dashboard), listener)
    return Exit.OK


def authorize(session: Session, host: str, options: dict[str, Any]) -> Authorize:
    """Return the ways to get in. Without any, everyone gets in, and only from this machine."""
    from dibs.web.access import Proxies, by_header, by_password, by_token, first_of, from_this_machine, is_loopback
    from dibs.web.guesses import limit_guesses

    write, proxies = options["write"], Proxies(options["trusted_proxy"])
    ways: list[Authorize] = []
    if file := options["password_file"]:
        ways.append(by_password(secrets(session, file, named=True), write=write))
    if file := options["token_file"]:
        ways.append(by_token(secrets(session, file, named=False), write=write))
    if options["user_header"]:
        if not options["trusted_proxy"]:
            raise InvalidArgument("--user-header needs the address of the proxy", hint="add: --trusted-proxy ADDRESS")
        ways.append(by_header(options["user_header"], proxies, write=write))
    if ways:
        return limit_guesses(first_of(ways), proxies)
    if not is_loopback(host):
        raise InvalidArgument(
            f"anyone who reaches {host} would see your jobs", hint="add --password-file, --token-file or --user-header"
        )
    return from_this_machine(write=write)


def secrets(session: Session, file: Path, *, named: bool) -> SecretFile:
    """Read a file of secrets; warn if others can read it."""
    from dibs.web.secrets import SecretFile

    found = SecretFile(file, named=named)
    if found.is_open:
        session.output.note(f"others on this machine can read {file}; run: chmod 600 {file}", "yellow")
    return found


def check_roles(session: Session, dsn: str, write: bool) -> None:
    """Report the rights that the login lacks. If the database does not answer now, the pages will report them."""
    try:
        found = taken(dsn)
    except ConnectionLost:
        return
    if found is None:
        return
    login, roles = found
    if not {"dibs_read", "dibs_observer"} & set(roles):
        raise NotPermitted(
            f"{login} can take none of the roles dibs_read and dibs_observer, so there is nothing to show",
            hint=f"let an administrator run: grant dibs_read to {login}; or dibs_admin, which has all roles of actions",
        )
    if write and (refused := [f"dibs_{a}" for a in ACTIONS[1:] if f"dibs_{a}" not in roles]):
        session.output.note(
            f"{login} cannot take {', '.join(refused)}, so the database refuses what they are for;"
            f" let an administrator run: grant {', '.join(refused)} to {login}"
        )


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(found[4][:2], family=found[0])
    except OSError as error:
        raise InvalidArgument(
            f"port {port} of {host} cannot be opened: {error.strerror or error}",
            hint="another process may have it; choose another one with --port",
        ) from None


def tell(session: Session, listener: socket.socket, prefix: str, write: bool) -> None:
    """Print the address of the dashboard."""
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/{prefix.strip('/')}"
    if session.as_json:
        session.output.json({"url": url, "write": write})
    else:
        session.output.say(f"the dashboard is on {url}")
        session.output.note("changes are allowed" if write else "read-only; --write allows changes")


def serve(dashboard: ASGIApp, listener: socket.socket) -> None:
    """Serve until a signal says stop."""
    try:
        server_of(dashboard).run(sockets=[listener])
    except KeyboardInterrupt:
        return


def server_of(dashboard: ASGIApp) -> uvicorn.Server:
    """Return a web server for a dashboard."""
    import uvicorn

    # Access depends on the peer's own address, so no header may change it.
    return uvicorn.Server(
        uvicorn.Config(
            dashboard,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            lifespan="on",
            limit_concurrency=CROWD,
        )
    )
