"""Takes secrets out of documents and texts: values that are known, values under telling names, and what looks like one.

A value is replaced by the name of its variable, so that a reader still sees what stood there. Patterns have bounds: a
log may hold anything, and none of them may take longer than a time proportional to its length.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from trainer.job import environment
from trainer.job.names import SECRET_LIKE
from trainer.job.names import SECRET_WORDS as WORDS

SHORTEST = 4
"""Characters of a value that is looked for: shorter ones are part of every text."""
_ALONE = 8
"""Shorter values than this are found only as a whole word."""
_OF_VARIABLES = ("env", "environment", "Env", "httpHeaders")
"""Keys of specs, pods and containers under which variables are, and headers of probes."""
_ADDRESSES = {"webhook"}
"""Keys whose values are addresses that only their owner should know."""
_SYSTEMS = re.compile(r"([\w-]+\.)*(kubernetes|k8s|x-k8s)\.io/")
"""Begins the names of annotations that Kubernetes writes; others may hold anything."""
_NAMES_ONLY = {"key", "secret", "secrets", "secretName", "secretRef", "secretKeyRef", "imagePullSecrets"}
"""Keys of specs and of Kubernetes' objects that hold the name of a secret, not the secret."""
_PLACES = ("file", "folder", "path", "dir", "name", "ref")
"""Ends of names whose values say where a secret is."""
_OWN = {name for name in vars(environment).values() if isinstance(name, str) and name.startswith("TRAINER_")}
_HARMLESS = {
    *_OWN - {environment.SECRET, environment.SET},
    "TF_CONFIG",
    "TASK_INDEX",
    "PATH",
    "HOME",
    "HOSTNAME",
    "LANG",
    "TZ",
}
_HARMLESS_BEGIN = (
    "TF_",
    "XLA_",
    "NCCL_",
    "CUDA_",
    "OMP_",
    "KMP_",
    "MALLOC_",
    "GRPC_",
    "PYTHON",
    "LC_",
    environment.DATA_PLACE,
)
"""Variables whose values are shown, unless they are also a secret's."""
_PLAIN = re.compile(r"[-+]?\d{0,12}(\.\d{0,12})?|true|false|none|null|yes|no|on|off", re.IGNORECASE)

PASSWORD_IN_URL = re.compile(r"://[^\s/@:\"']{0,200}:(?P<value>[^\s/@\"']{1,500})@")
_FLAG = re.compile(rf"--?[\w-]{{0,40}}?(?:{WORDS})[\w-]{{0,40}}", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"(?P<before>(?P<name>(?:{WORDS})[\w.-]{{0,40}})[\"']?\s{{0,3}}(?P<sign>=|:)\s{{0,3}}"
    r"(?P<quote>[\"']?))(?P<value>[^\s\"',;&<>{}\[\]()]{1,4000})",
    re.IGNORECASE,
)
_FOLLOWING = re.compile(
    rf"(?P<before>(?:^|\s){_FLAG.pattern}\s{{1,3}})(?P<value>[^\s\"'-][^\s\"']{{0,4000}})", re.IGNORECASE
)
_SHAPES = [
    re.compile(
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:(?!-----BEGIN).){0,16000}?-----END [A-Z ]{0,30}PRIVATE KEY-----",
        re.DOTALL,
    ),
    re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:\s{0,3}[A-Za-z0-9+/=]{16,80}\b){0,200}"),
    re.compile(r"(?:^[A-Za-z0-9+/=]{16,80}\n){1,200}-----END [A-Z ]{0,30}PRIVATE KEY-----", re.MULTILINE),
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]{16,16000}"),  # a key or certificate in base64, as in a kubeconfig
    # JSON web tokens, AWS, GitHub, GitLab, Google, Hugging Face, OpenAI and Anthropic, npm, PyPI, Docker, Slack,
    # Databricks, Stripe.
    re.compile(
        r"\b(?:eyJ[\w-]{10,4000}\.[\w-]{10,8000}(?:\.[\w-]{0,4000})?|(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"
        r"|gh[opsur]_\w{20,255}|github_pat_\w{20,255}|gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas|ffct)-[\w.-]{20,255}|GR1348941[\w-]{20,255}"
        r"|AIza[\w-]{35}|ya29\.[\w-]{20,1000}|1//0[\w-]{20,255}|GOCSPX-[\w-]{20,255}"
        r"|hf_\w{30,255}|api_org_\w{30,255}|sk-[\w-]{20,255}|[rs]k_(?:live|test)_\w{20,255}|dapi[0-9a-f]{32}|npm_\w{30,255}|pypi-\w[\w-]{30,255}|dckr_pat_[\w-]{20,255}"
        r"|xox[abeprs](?:\.xox[abp])?-[\w-]{10,255}|xapp-[\w-]{10,255})"
    ),
]
_WITHIN = [
    re.compile(
        r"(?P<before>\b[a-zA-Z][\w+.-]{0,20}://)(?P<value>[^\s/@\"']{1,1000})(?=@)"
    ),  # https://user:password@host
    re.compile(
        rf"(?P<before>[?&][\w.-]{{0,40}}?(?:{WORDS}|sig|signature)=)(?P<value>[^&\s\"'<>]{{1,4000}})", re.IGNORECASE
    ),
    # Azure: a shared access signature outside of an address, and the keys in a connection string.
    re.compile(
        r"(?P<before>\b(?:sig|AccountKey|SharedAccessKey|SharedAccessSignature)=)(?P<value>[\w%+/=&:.-]{16,4000})"
    ),
    re.compile(r"(?P<before>\bhooks\.slack\.com/services/)(?P<value>[\w/]{1,255})"),
    re.compile(
        r"(?P<before>\bauthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?P<value>\w{1,20} [^\s\"']{1,8000})", re.IGNORECASE
    ),
    re.compile(r"(?P<before>\"auth\"\s{0,3}:\s{0,3}\")(?P<value>[A-Za-z0-9+/=]{4,8000})"),  # of Docker's config.json
    re.compile(r"(?P<before>\b(?:bearer|basic)\s{1,3})(?P<value>[\w.~+/=-]{16,8000})", re.IGNORECASE),
]


class Redactor:
    """What is known of a job's secrets. All that it should know comes before the first text that it is given."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for name, value in (known or {}).items():
            self.know(name, value)

    def know(self, name: str, value: str) -> None:
        """Hides a value wherever it occurs, also as JSON, URLs and base64 write it. Each line of it is hidden too, and
        the password in a URL."""
        passwords = [match["value"] for match in PASSWORD_IN_URL.finditer(value)]
        for each in dict.fromkeys([value, *value.splitlines(), *passwords]):
            each = each.strip()
            if len(each) < SHORTEST or _PLAIN.fullmatch(each):
                continue
            written = (each, json.dumps(each)[1:-1], repr(each)[1:-1], quote(each), quote(each, safe=""))
            encoded = base64.b64encode(each.encode(errors="surrogateescape")).decode()
            self._known |= dict.fromkeys([*written, encoded.rstrip("=")], f"[hidden: {name}]")
        self._pattern = None

    def document(self, found: object, key: str = "") -> object:
        """A copy of a JSON value without secrets. It remembers what it hides: see `know`."""
        if isinstance(found, Mapping):
            if key in _OF_VARIABLES:
                return {self.text(str(name)): self._variable(str(name), value) for name, value in found.items()}
            if key == "annotations":
                return {self.text(str(name)): self._annotation(str(name), value) for name, value in found.items()}
            return {self.text(str(name)): self.document(value, str(name)) for name, value in found.items()}
        if isinstance(found, (list, tuple)):
            return self._list(found, key)
        if not isinstance(found, str):
            return found
        if key in _ADDRESSES or (key not in _NAMES_ONLY and _looks_secret(key) and not _says_where(key)):
            return self._hide(key, found)
        return self._embedded(found)

    def text(self, text: str) -> str:
        """A text without secrets."""
        for pattern in _SHAPES:
            text = pattern.sub("[hidden]", text)
        text = self._without_known(text)
        for pattern in _WITHIN:
            text = pattern.sub(r"\g<before>[hidden]", text)
        return _FOLLOWING.sub(_following, _ASSIGNED.sub(_assigned, text))

    def _without_known(self, text: str) -> str:
        if not self._known:
            return text
        if self._pattern is None:
            # The longest first: a value may be part of another one.
            values = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(_alone_if_short, values)))
        return self._pattern.sub(lambda match: self._known[match[0]], text)

    def _list(self, found: Iterable[object], key: str) -> list[object]:
        hidden: list[object] = []
        after = ""  # the flag before a word
        for each in found:
            if key in _OF_VARIABLES and isinstance(each, Mapping):
                variable = {"value": self._variable(str(each.get("name")), each["value"])} if "value" in each else {}
                hidden.append(
                    {**{str(k): self.document(v, str(k)) for k, v in each.items() if k != "value"}, **variable}
                )
                continue
            name, equals, value = each.partition("=") if isinstance(each, str) else ("", "", "")
            if isinstance(each, str) and after:
                hidden.append(self._hide(after, each))
            elif equals and (key in _OF_VARIABLES or _FLAG.fullmatch(name)):
                hidden.append(f"{name}={self._variable(name.lstrip('-'), value)}")
            else:
                hidden.append(self.document(each))
            after = str(each).lstrip("-") if isinstance(each, str) and _FLAG.fullmatch(each) else ""
        return hidden

    def _variable(self, name: str, value: object) -> object:
        """The value of an environment variable, if it is known to be harmless."""
        if isinstance(value, (Mapping, list)):
            return self.document(value)
        if not isinstance(value, str):
            return self._hide(name, str(value)) if _looks_secret(name) and value is not None else value
        if not _looks_secret(name) or name in _HARMLESS:
            if _PLAIN.fullmatch(value):
                return value
            if name in _HARMLESS or name.startswith(_HARMLESS_BEGIN):
                return self._embedded(value)
        return self._hide(name, value)

    def _annotation(self, name: str, value: object) -> object:
        return self.document(value) if _SYSTEMS.match(name) else self._variable(name, value)

    def _hide(self, name: str, value: str) -> str:
        if name in _ADDRESSES or _looks_secret(name) or _looks_random(value) or PASSWORD_IN_URL.search(value):
            self.know(name, value)
        return f"[hidden: {name}]" if value else ""

    def _embedded(self, text: str) -> str:
        """A text that may itself be JSON, as the job spec in a variable is."""
        if text[:1] in "{[" and text:
            try:
                return json.dumps(self.document(json.loads(text)))
            except (ValueError, RecursionError):
                pass
        self._learn(text)
        return self.text(text)

    def _learn(self, text: str) -> None:
        """Remembers what looks like a secret in a document: a log may have the value alone."""
        for pattern in (*_SHAPES, *_WITHIN, _ASSIGNED, PASSWORD_IN_URL):
            for match in pattern.finditer(text):
                value = match.groupdict().get("value") or match[0]
                if _looks_random(value):
                    self.know("secret", value)


def of_job(spec: object, secrets: Iterable[str]) -> Redactor:
    """Knows the secrets of a job: the values that are set in this environment, and what is hidden in its spec.

    Args:
        spec: as a document.
        secrets: names.
    """
    made = Redactor({name: os.environ.get(name, "") for name in secrets})
    made.document(spec)
    return made


def _alone_if_short(value: str) -> str:
    pattern = re.escape(value)
    return pattern if len(value) >= _ALONE else rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])"


def _looks_random(value: str) -> bool:
    """Whether a value is probably no word, number or path."""
    mixed = re.search(r"[A-Za-z]", value) and re.search(r"\d", value)
    return bool(mixed) and len(value) >= _ALONE and not re.search(r"\s|^[~./]|://", value)


def _looks_secret(name: str) -> bool:
    return bool(SECRET_LIKE.search(name))


def _says_where(name: str) -> bool:
    return name.lower().endswith(_PLACES)


def _assigned(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if value.startswith("[hidden") or _PLAIN.fullmatch(value) or _says_where(name):
        return match[0]
    # After a colon mostly comes prose, as in `secrets.API_KEY: the variable is not set`.
    prose = match["sign"] == ":" and not match["quote"] and not _looks_random(value) and "passw" not in name.lower()
    return match[0] if prose or len(value) < SHORTEST else f"{match['before']}[hidden]"


def _following(match: re.Match[str]) -> str:
    return match[0] if match["value"].startswith("[hidden") else f"{match['before']}[hidden]"
