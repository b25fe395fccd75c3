"""One call to a running service, for the command line: files in, errors in one line."""

from pathlib import Path

import grpc

from rewriter.conversation import Conversation
from serving.answer import Answer
from serving.client import Rewriter
from serving.credentials import channel_credentials, read_token

# Of a person; a chatbot would not wait so long for a server that has just started.
_PATIENCE_SECONDS = 10.0


def ask(
    server: str,
    conversation: Conversation,
    *,
    tls: bool,
    ca_file: Path | None,
    certificate_file: Path | None,
    key_file: Path | None,
    token_file: Path | None,
) -> Answer:
    """Any file of TLS means TLS. Raises RuntimeError with the server's words; OSError or ValueError for files."""
    wants_tls = tls or any((ca_file, certificate_file, key_file))
    credentials = channel_credentials(ca_file, certificate_file, key_file) if wants_tls else None
    token = read_token(token_file) if token_file else None
    with Rewriter(server, timeout_seconds=_PATIENCE_SECONDS, credentials=credentials, token=token) as client:
        try:
            return client.rewrite(conversation.history, conversation.utterance)
        except grpc.RpcError as error:
            raise RuntimeError(f"{server}: {error.code().name}: {error.details()}") from None
