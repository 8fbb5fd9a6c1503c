"""A server with the part of the Hugging Face Hub's protocol that ingot uses, and with faults on demand. It has two
origins on separate ports: the Hub, and the store to which large files are redirected. Follows huggingface_hub and the
Hub's documentation."""
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repo:
    """Files by path, at one commit. Files with a suffix of weights are large files (LFS), named by their SHA-256. The
    others are in git."""

    def __init__(self, files, revisions=("main",), private=False, gated=False):
        self.files = dict(files)
        self.private, self.gated = private, gated
        self.commit = hashlib.sha1(repr(sorted((p, hashlib.sha1(c).digest()) for p, c in files.items())).encode()).hexdigest()
        self.revisions = {name: self.commit for name in revisions} | {self.commit: self.commit}
        self.old = {}  # commit: files of earlier commits

    def update(self, files):
        """Makes a new commit and moves main to it."""
        old = Repo(self.files)
        new = Repo(files)
        self.old[old.commit] = old.files
        self.files, self.commit = new.files, new.commit
        self.revisions |= {"main": new.commit, new.commit: new.commit}

    def at(self, commit):
        return self.files if commit == self.commit else self.old[commit]


def is_lfs(path):
    return path.endswith((".gguf", ".safetensors", ".bin"))


def hash_of(path, content):
    return hashlib.sha256(content).hexdigest() if is_lfs(path) else git_sha1(content)


def entry(path, content):
    result = {"type": "file", "oid": git_sha1(content), "size": len(content), "path": path}
    if is_lfs(path):
        result["lfs"] = {"oid": hash_of(path, content), "size": len(content), "pointerSize": 134}
        result["oid"] = git_sha1(b"pointer to " + content[:64])
    return result


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):  # huggingface_hub sends HEAD, ingot does not
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        url = urllib.parse.urlsplit(self.path)
        hub.requests.append((self.server.role, url.path, {k.lower(): v for k, v in self.headers.items()}))
        for pattern, answers in hub.overrides.items():
            if re.search(pattern, self.path) and answers and self.server.role == "hub":
                status, headers, body = answers.pop(0)
                return self.answer(status, body, headers)
        try:
            if self.server.role == "store":
                return self.file(*hub.stored[urllib.parse.unquote(url.path)])
            self.hub_request(url)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, status, body=b"", headers=()):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        headers = dict(headers)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def hub_request(self, url):
        hub = self.server.hub
        if urllib.parse.unquote(url.path) in hub.stored:
            return self.file(*hub.stored[urllib.parse.unquote(url.path)])
        parts = [urllib.parse.unquote(p) for p in url.path.strip("/").split("/")]
        if parts[:2] == ["api", "models"] and len(parts) >= 5:
            repo, kind, revision = "/".join(parts[2:4]), parts[4], "/".join(parts[5:])
        elif len(parts) >= 5 and parts[2] == "resolve":
            repo, kind, revision = "/".join(parts[:2]), "resolve", parts[3]
        else:
            return self.answer(404, {"error": "Not found"})
        known = hub.repos.get(repo)
        token = self.headers.get("Authorization")
        if token is not None and token != f"Bearer {hub.token}":
            return self.answer(401, {}, {"X-Error-Message": "Invalid credentials in Authorization header"})
        if known is None or (known.private and token is None):
            return self.answer(401 if token is None else 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        if known.gated and (token is None or kind == "resolve"):
            return self.answer(403 if token else 401, {}, {"X-Error-Code": "GatedRepo", "X-Error-Message": f"Access to model {repo} is restricted."})
        if kind == "tree" and revision not in known.revisions and revision.rpartition("/")[0] in known.revisions:  # as transformers asks
            return self.answer(404, {"error": "Not found"}, {"X-Error-Code": "EntryNotFound"})
        if revision not in known.revisions:
            return self.answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        commit = known.revisions[revision]
        if kind == "revision":
            return self.answer(200, {"id": repo, "sha": commit, "siblings": [{"rfilename": p} for p in known.at(commit)]})
        if kind == "tree":
            return self.tree(known, commit, url)
        path = "/".join(parts[4:])
        if path not in known.at(commit):
            return self.answer(404, b"Entry not found", {"X-Error-Code": "EntryNotFound"})
        self.resolve(path, known.at(commit)[path], commit)

    def tree(self, known, commit, url):
        hub = self.server.hub
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": p} for p in sorted({p.split("/")[0] for p in known.at(commit) if "/" in p})]
        entries += [entry(p, c) for p, c in known.at(commit).items()]
        entries = [hub.listed.get(e["path"], e) for e in entries]
        at = int(urllib.parse.parse_qs(url.query).get("cursor", ["0"])[0])
        headers = {}
        if at + hub.page < len(entries):
            headers["Link"] = f'<{hub.endpoint}{url.path}?recursive=true&cursor={at + hub.page}>; rel="next"'
        self.answer(200, entries[at : at + hub.page], headers)

    def resolve(self, path, content, commit):
        hub = self.server.hub
        digest = hash_of(path, content)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{digest}"'}
        if not is_lfs(path):  # with a relative redirect to the same host
            address = f"/api/resolve-cache/{commit}/{path}"
            hub.stored[address] = (path, content, headers)
            return self.answer(307, b"", headers | {"Location": urllib.parse.quote(address)})
        address = f"/store/{commit}/{path}"
        hub.stored[address] = (path, content)  # the store has no commits
        self.answer(302, b"Found", headers | {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content)),
                                              "Location": hub.store + urllib.parse.quote(address) + "?signature=abc"})

    def file(self, path, content, headers=()):
        hub = self.server.hub
        headers = dict(headers)
        begin, status = 0, 200
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and path not in hub.ignores_range:
            begin, status = int(wanted[1]), 206
            if begin >= len(content) or path in hub.refuses_range:
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            said = hub.wrong_range[path].pop(0) if hub.wrong_range.get(path) else begin
            headers["Content-Range"] = f"bytes {said}-{len(content) - 1}/{len(content)}"
        body = hub.corrupted.get(path, content)[begin:]
        headers["Content-Length"] = str(len(body))
        if path in hub.unsized:
            del headers["Content-Length"]
        cuts = hub.cuts.get(path, [])
        cut = cuts.pop(0) if cuts else None
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        stop = len(body) if cut is None else min(cut, len(body))
        hub.sent[path] = hub.sent.get(path, 0) + stop
        step = hub.chunk.get(path, 1 << 20)
        for at in range(0, stop, step):
            self.wfile.write(body[at : min(at + step, stop)])
            self.wfile.flush()
            if path in hub.pause:
                time.sleep(hub.pause[path])
        if path in hub.stalls and cut is not None:
            hub.release.wait(60)
        if cut is not None or path in hub.unsized:
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # some tests need a client that disconnects during a handshake


class FakeHub:
    def __init__(self, tls=None, host="127.0.0.1", store_tls=True):
        """tls: the ssl.SSLContext for https, of both origins or only of the Hub."""
        self.repos, self.stored, self.token, self.page = {}, {}, "hf_right", 1000
        self.requests = []     # (role, path, headers)
        self.overrides = {}    # pattern: [(status, headers, body)], each used once
        self.listed = {}       # path: replacement for the tree's entry
        self.cuts = {}         # path: [n bytes until the connection is cut], one entry per request
        self.stalls = set()    # paths whose connections stall instead of being cut
        self.corrupted, self.ignores_range, self.refuses_range, self.unsized = {}, set(), set(), set()
        self.wrong_range = {}  # path: [first byte in Content-Range], one entry per resumed request
        self.chunk, self.pause = {}, {}
        self.sent = {}         # path: bytes of bodies sent
        self.release = threading.Event()
        self.servers = []
        for role in ("hub", "store"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.role, server.scheme = self, role, "http"
            if tls and (role == "hub" or store_tls):  # the handshake comes with the first read, in the connection's own thread
                server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
                server.scheme = "https"
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.servers.append(server)
        self.endpoint, self.store = (f"{s.scheme}://{host}:{s.server_address[1]}" for s in self.servers)

    def close(self):
        self.release.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()
