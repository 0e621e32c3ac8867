"""A time-stamping authority (RFC 3161) made with OpenSSL, which is what a public one is, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

CONFIG = """\
[tsa]
default_tsa = it
[it]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha384, sha512
ess_cert_id_alg = sha256
[root]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[req]
distinguished_name = name
[name]
"""


def openssl(folder: Path, *arguments: str) -> None:
    """Run OpenSSL there."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path) -> Path:
    """A root (`root.pem`), and a leaf that may stamp, as OpenSSL makes them; returns the folder."""
    folder.mkdir()
    (folder / "tsa.cnf").write_text(CONFIG)
    (folder / "serial").write_text("01\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "tsa.cnf")
    root = ("-keyout", "root.key", "-out", "root.pem", "-subj", "/CN=a root of a test", "-extensions", "root", "-days", "400")
    openssl(folder, "req", "-x509", *key, *root)
    openssl(folder, "req", *key, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=an authority of a test")
    by_root = ("-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", "300")
    openssl(
        folder, "x509", "-req", "-in", "leaf.csr", *by_root, "-extfile", "tsa.cnf", "-extensions", "leaf", "-out", "leaf.pem"
    )
    return folder


def answer(folder: Path, query: bytes) -> bytes:
    """What the authority in `folder` says to a query, with the time of its clock: now."""
    (folder / "query").write_bytes(query)
    signer = ("-signer", "leaf.pem", "-inkey", "leaf.key")
    openssl(folder, "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query", *signer, "-out", "reply")
    return (folder / "reply").read_bytes()


def stamp_over(folder: Path, content: bytes) -> bytes:
    """A stamp of the authority in `folder` over any bytes, without the network."""
    (folder / "data").write_bytes(content)
    openssl(folder, "ts", "-query", "-data", "data", "-sha512", "-cert", "-out", "asked")
    return answer(folder, (folder / "asked").read_bytes())
