"""The Hub over https (fake_hub.py, with authorities and certificates made here). Downloads work only from servers with
a certificate of a trusted authority. Other servers get no request, and the message gives the reason."""
import pathlib
import ssl
import subprocess

import fake_hub
import pytest
from hub_rig import run, seed  # noqa: F401 (fixtures)

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Authority:
    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", *KEY, "-keyout", self.key, "-out", self.certificate, "-days", "2", "-subj", f"/CN={name}")

    def context(self, names, days=2):
        """The context of a server with those names. days 0: the certificate has expired when it is used."""
        base = self.folder / f"{self.name}-server"
        base.with_suffix(".ext").write_text(f"subjectAltName={names}\n")
        openssl("req", *KEY, "-keyout", base.with_suffix(".key"), "-out", base.with_suffix(".csr"), "-subj", "/CN=server")
        openssl("x509", "-req", "-in", base.with_suffix(".csr"), "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", days,
                "-extfile", base.with_suffix(".ext"), "-out", base.with_suffix(".pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(base.with_suffix(".pem"), base.with_suffix(".key"))
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture
def start(request, authority):
    """start(names, ...) -> a FakeHub over https with a repository."""

    def start(names="DNS:localhost", host="localhost", days=2, signed_by=None, **kwargs):
        hub = fake_hub.FakeHub((signed_by or authority).context(names, days), host, **kwargs)
        request.addfinalizer(hub.close)
        return hub

    return start


@pytest.fixture
def hub():  # the default Hub of hub_rig's `run`: a port without a server
    class Nobody:
        endpoint = "https://localhost:1"

    return Nobody()


def pull(run, hub, authority=None, code=0, variable="SSL_CERT_FILE", **env):
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": hub.token} | env
    if authority:
        settings[variable] = str(authority.certificate)
    return run("pull", "org/repo", code=code, env=settings)


def refused(run, hub, authority=None, **env):
    """Checks that the message has the reason, that no request arrived, and that no file is left."""
    error = pull(run, hub, authority, code=1, **env).stderr
    assert hub.requests == [], "the token was sent to a server that is not trusted"
    assert not list(run.cache.rglob("*.gguf")) and not (run.cache / "models--org--repo/refs").exists()
    return error


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_trusted_authority(run, seed, start, authority, variable):
    hub, content = start(), seed.randbytes(300_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.cuts["m.gguf"] = [seed.randrange(1, 300_000)]  # and the download resumes over https
    path = pull(run, hub, authority, variable=variable).stdout.strip()
    assert pathlib.Path(path).read_bytes() == content
    roles = [(role, "authorization" in headers) for role, _, headers in hub.requests]
    assert ("hub", True) in roles and ("store", False) in roles and ("store", True) not in roles


def test_an_authority_that_nobody_knows(run, start):
    error = refused(run, start())
    assert "certificate" in error and "SSL_CERT_FILE" in error


def test_another_authority(run, start, authority, tmp_path):
    error = refused(run, start(signed_by=Authority(tmp_path, "theirs")), authority)
    assert "certificate" in error and "SSL_CERT_FILE" in error


def test_a_certificate_for_another_host(run, start, authority):
    assert "localhost" in refused(run, start("DNS:elsewhere.example"), authority)


def test_an_address_instead_of_a_name(run, seed, start, authority):
    hub = start("IP:127.0.0.1", "127.0.0.1")
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": seed.randbytes(1000)})
    pull(run, hub, authority)


def test_a_certificate_out_of_date(run, start, authority):
    assert "expired" in refused(run, start(days=-1), authority)


def test_files_are_not_fetched_without_tls(run, seed, start, authority):
    hub = start(store_tls=False)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": seed.randbytes(1000)})
    assert "only https addresses are allowed" in pull(run, hub, authority, code=1).stderr
    assert not any(role == "store" for role, _, _ in hub.requests)


def test_a_server_without_tls(run, start, authority):
    hub = fake_hub.FakeHub()
    hub.endpoint = hub.endpoint.replace("http:", "https:")
    try:
        assert "https://127.0.0.1" in refused(run, hub, authority)
    finally:
        hub.close()


@pytest.mark.parametrize("content", [None, "", "no certificate at all"])
def test_a_file_that_has_no_certificates(run, start, tmp_path, content):
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)
    assert "authorities.pem" in refused(run, start(), SSL_CERT_FILE=str(path))
