#!/usr/bin/env python3
"""A worker of daisy that is not daisy's own: docs/protocol.md in the standard library of Python. It has one slot, runs tasks with
`command`, and ends where its connection does: it does not come back, which daisy's own worker does."""
import hashlib, hmac, http.client, json, os, queue, re, secrets, signal, socket, ssl, struct, subprocess, sys, threading, time

where = sys.argv[sys.argv.index("--run-dir") + 1]
with open(where + "/discovery.json") as f:
    found = json.load(f)
with open(where + "/secret") as f:
    secret = f.read().strip().encode()


def proof(*fields):
    text = b"".join(struct.pack(">Q", len(f)) + f for f in fields)
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def connect():
    host, port = found["addresses"][0].rsplit(":", 1)
    sock = socket.create_connection((host.strip("[]"), int(port)), 10)
    pin = found.get("certificate_sha256")
    if pin:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.minimum_version, tls.check_hostname, tls.verify_mode = ssl.TLSVersion.TLSv1_3, False, ssl.CERT_NONE
        sock = tls.wrap_socket(sock)
        if hashlib.sha256(sock.getpeercert(True)).hexdigest() != pin:
            sys.exit(3)
    return sock


def request(method, path, body=b"", headers={}):
    nonce, run = secrets.token_hex(16), found["run_id"]
    said = [run.encode(), method.encode(), path.encode(), nonce.encode()]
    http_ = http.client.HTTPConnection("daisy")
    http_.sock = sock = connect()
    http_.request(method, path, body, {"Daisy-Run": run, "Daisy-Nonce": nonce, "Daisy-Proof": proof(b"worker", *said, b"", body), **headers})
    answer = http_.getresponse()
    text = answer.read()
    if not hmac.compare_digest(answer.getheader("Daisy-Proof", ""), proof(b"coordinator", *said, str(answer.status).encode(), text)):
        sys.exit(3)  # somebody else: what it says does not count
    if answer.status not in (101, 200):
        refusal = json.loads(text)
        print(refusal["error"], file=sys.stderr)
        sys.exit(0 if refusal["code"] == "ended" else 4)
    return text, sock


def uint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def zigzag(n):
    return uint(n * 2 if n >= 0 else -n * 2 - 1)


def string(s):
    return uint(len(s.encode())) + s.encode()


def uints(payload):  # of a message that has nothing else
    numbers, n, shift = [], 0, 0
    for byte in payload:
        n, shift = n | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            numbers.append(n)
            n, shift = 0, 0
    return numbers


nonce = secrets.randbits(64) | 1
me = {"protocol": 1, "version": "example", "nonce": nonce, "slots": 1, "node": socket.gethostname(), "pid": os.getpid()}
if os.environ.get("DAISY_TAG"):
    me.update(tag=os.environ["DAISY_TAG"], element=int(os.environ["DAISY_ELEMENT"]))
else:
    me.update(name="%s-%d" % (socket.gethostname(), os.getpid()))
joined = json.loads(request("POST", "/v1/join", json.dumps(me).encode())[0])
tasks = {joined["task"]["index"]: joined["task"]}
stream = request("GET", "/v1/stream", headers={"Connection": "Upgrade", "Upgrade": "daisy-worker/1"})[1]
stream.settimeout(3 * joined["heartbeat_seconds"])  # silence ends the connection, and with it this worker
sending = threading.Lock()


def send(kind, payload=b""):
    with sending:
        stream.sendall(struct.pack(">IBB", len(payload) + 2, 1, kind) + payload)


def exactly(n):
    got = b""
    while len(got) < n:
        part = stream.recv(n - len(got))
        if not part:
            raise OSError("the coordinator closed the stream")
        got += part
    return got


def place(task, flat):  # of block number flat: its regions
    whole, read, write, index = task["total_read"], task["read"], task["write"], []
    axes = range(len(write["shape"]))
    end = lambda r, a: r["offset"][a] + r["shape"][a]
    low = [write["offset"][a] - read["offset"][a] for a in axes]
    high = [end(read, a) - end(write, a) for a in axes]
    begin, until = [whole["offset"][a] + low[a] for a in axes], [end(whole, a) - high[a] for a in axes]
    for a in reversed(axes):
        extent, w = until[a] - begin[a], write["shape"][a]
        n = extent // w if task["fit"] == "valid" else -(-extent // w)
        index.insert(0, flat % n)
        flat //= n
    def region(lower, upper, first, last):
        lo = [begin[a] + index[a] * write["shape"][a] - lower[a] for a in axes]
        hi = [begin[a] + (index[a] + 1) * write["shape"][a] + upper[a] for a in axes]
        if task["fit"] == "shrink":
            lo, hi = [max(lo[a], first[a]) for a in axes], [min(hi[a], last[a]) for a in axes]
        return {"offset": lo, "shape": [hi[a] - lo[a] for a in axes]}
    none = [0 for _ in axes]
    return index, region(low, high, whole["offset"], [end(whole, a) for a in axes]), region(none, none, begin, until)


SUCCESS, FAILED, TIMED_OUT, RETURNED = 0, 2, 3, 6
HELLO, ACQUIRE, RELEASE, HEARTBEAT, LEAVING = 1, 2, 3, 4, 5
WELCOME, BLOCKS, ACKNOWLEDGED, REFUSED, RECALL, REASSIGN, DRAIN, STOP, KILL_BLOCK = range(32, 41)
lock = threading.Lock()  # of the six below
held, running, seq, settled, leaving, stopped = set(), None, 0, 0, False, False
mine = queue.SimpleQueue()


def work():
    """Runs the blocks that come, one after another."""
    global running, seq
    while True:
        task, lease, flat, attempt = mine.get()
        index, read, write = place(task, flat)
        block = {"task": task["id"], "index": index, "read": read, "write": write, "attempt": attempt, "lease": "%d.%d" % (joined["epoch"], lease)}
        words = {"task_id": task["id"], "attempt": attempt, "lease": block["lease"], "index": index}
        for name, r in ("read", read), ("write", write):
            words.update({name + "_offset": r["offset"], name + "_shape": r["shape"], name + "_end": [o + s for o, s in zip(r["offset"], r["shape"])]})
        words = {k: ",".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in words.items()}
        argv = [re.sub(r"\{(\w+)\}", lambda m: words.get(m[1], m[0]), a) for a in task["argv"]]
        env = {**os.environ, **dict(e.split("=", 1) for e in task.get("env", []))}
        began, outcome, message = time.monotonic_ns(), SUCCESS, ""
        try:
            with lock:
                if lease not in held:
                    continue  # it was taken back before it began
                running = lease, subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=task["dir"], env=env, start_new_session=True)
            running[1].communicate(json.dumps(block).encode() + b"\n", task["timeout_seconds"] or None)
            if running[1].returncode:
                outcome, message = FAILED, "exit status %d" % running[1].returncode
        except subprocess.TimeoutExpired:
            kill(lease)
            running[1].wait()
            outcome, message = TIMED_OUT, "timed out"
        except OSError as e:
            outcome, message = FAILED, str(e)
        with lock:
            running = None
            if lease not in held:
                continue  # taken back: nothing is said of it
            held.remove(lease)
            if stopped and outcome != SUCCESS:
                outcome = RETURNED
            seq += 1
            send(RELEASE, uint(seq) + uint(joined["epoch"]) + uint(lease) + bytes([outcome]) + zigzag(time.monotonic_ns() - began)
                 + zigzag(0) + zigzag(0) + string(message) + string(""))
            if not leaving:
                send(ACQUIRE, uint(seq + 1) + uint(1))


def kill(lease):
    now = running
    if now and now[0] == lease:
        os.killpg(now[1].pid, signal.SIGKILL)


def beat():
    while True:
        time.sleep(joined["heartbeat_seconds"])
        send(HEARTBEAT)


send(HELLO, string(joined["worker"]) + uint(nonce) + uint(joined["epoch"]) + uint(0))
for forever in beat, work:
    threading.Thread(target=forever, daemon=True).start()
while not leaving or held or settled < seq:
    length, version, kind = struct.unpack(">IBB", exactly(6))
    payload = exactly(length - 2)
    if version != 1:
        sys.exit(4)
    with lock:
        if kind == WELCOME:
            send(ACQUIRE, uint(seq + 1) + uint(1))
        elif kind == BLOCKS:
            _, task, _, *grants = uints(payload)
            for lease, flat, attempt in zip(grants[0::3], grants[1::3], grants[2::3]):
                held.add(lease)
                mine.put((tasks[task], lease, flat, attempt))
        elif kind == ACKNOWLEDGED:
            settled = max(settled, *uints(payload))
        elif kind == REASSIGN:  # the specification stands behind its length
            task = json.loads(payload[payload.index(b"{"):])
            tasks[task["index"]] = task
        elif kind in (DRAIN, STOP) and not leaving:
            leaving = True
            send(LEAVING, bytes([0]) + string(""))
        elif kind == KILL_BLOCK:
            send(HEARTBEAT)
            held.discard(*uints(payload))
            kill(*uints(payload))
        if kind == STOP:
            stopped = True
            for lease in held:
                kill(lease)
