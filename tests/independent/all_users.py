#!/usr/bin/env python3
"""Reads, checks and writes a Git repository `All-Users`.

    all_users.py show DIR               prints all accounts as JSON
    all_users.py check DIR              prints one line for each problem
    all_users.py write DIR COUNT SEED   creates a bare repository with COUNT accounts

The program uses the standard library and the `git` program, and shares no code
with any server. It therefore finds mistakes that a server and its own tests
would make in the same way.
"""

import argparse
import base64
import binascii
import datetime
import hashlib
import json
import os
import random
import re
import string
import struct
import subprocess
import sys

# ---------------------------------------------------------------------------
# Names, types and limits of the format
# ---------------------------------------------------------------------------

EXTERNAL_IDS = "refs/meta/external-ids"
CONFIG = "refs/meta/config"
DEFAULTS = "refs/users/default"
SEQUENCE = "refs/sequences/accounts"
FIRST_ACCOUNT = 1000000

TEXT, INTEGER, BOOLEAN = "text", "integer", "boolean"
PREFERENCES = {
    "general": {
        "showSiteHeader": BOOLEAN, "theme": TEXT, "timeZone": TEXT, "dateFormat": TEXT,
        "timeFormat": TEXT, "changesPerPage": INTEGER, "emailStrategy": TEXT,
        "emailFormat": TEXT,
    },
    "diff": {
        "context": INTEGER, "lineLength": INTEGER, "tabSize": INTEGER, "fontSize": INTEGER,
        "showTabs": BOOLEAN, "lineWrapping": BOOLEAN, "ignoreWhitespace": TEXT,
        "hideTopMenu": BOOLEAN, "manualReview": BOOLEAN,
    },
    "edit": {
        "lineLength": INTEGER, "tabSize": INTEGER, "indentWithTabs": BOOLEAN,
        "lineWrapping": BOOLEAN, "hideLineNumbers": BOOLEAN, "hideTopMenu": BOOLEAN,
    },
}
# The file may spell a key in any case; the output always has the documented spelling.
SPELLING = {section: {name.lower(): name for name in names}
            for section, names in PREFERENCES.items()}

NOTIFY_TYPES = frozenset((
    "NEW_CHANGES", "NEW_PATCHSETS", "ALL_COMMENTS", "SUBMITTED_CHANGES", "ABANDONED_CHANGES",
    "PLANS", "APPLIES", "LOCKS", "WAITS", "APPLY_LOCKS", "DRIFT", "ALL"))
FILTERS_WITH_ANY_VALUE = frozenset((
    "branch", "dir", "workspace", "project", "author", "label"))
FILTERS_WITH_FIXED_VALUES = {
    "owner": frozenset(("self",)),
    "is": frozenset(("starred", "draft", "destroying", "failed")),
}

MAX_FILE = 64 * 1024
MAX_FILES = 100
MAX_BRANCH = 1024 * 1024
MAX_KEYS = 100
MAX_WATCHES = 500
MAX_EXTERNAL_IDS = 100
MAX_NOTE = 512 * 1024
MAX_LABELS = 50
MAX_LABEL = 100
MAX_EMAIL = 254
MIN_RSA_BITS = 2048

# ---------------------------------------------------------------------------
# Git config syntax
# ---------------------------------------------------------------------------


class ConfigError(Exception):
    """A text that `git config` refuses, with the line of the mistake."""

    def __init__(self, line, reason):
        super().__init__("line %d: %s" % (line, reason))
        self.line = line
        self.reason = reason


class Entry:
    """One `key = value`; the value is None for a key without `=`."""

    __slots__ = ("section", "subsection", "key", "value", "line")

    def __init__(self, section, subsection, key, value, line):
        self.section = section
        self.subsection = subsection
        self.key = key
        self.value = value
        self.line = line

    def text(self):
        """Returns the value as text, where a key without `=` is `true`."""
        return "true" if self.value is None else decode(self.value)


SPACE = re.compile(rb"[ \t\r\n]*")
COMMENT = re.compile(rb"[^\n]*\n")
HEADER = re.compile(rb'\[([A-Za-z0-9.-]*)(?:[ \t\r]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
KEY = re.compile(rb"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
PLAIN_VALUE = re.compile(rb'([^"\\#;\n]*)\n')
INNER_SPACE = re.compile(rb"[\t\r]")
SUBSECTION_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
VALUE_ESCAPES = {ord("t"): 9, ord("b"): 8, ord("n"): 10, ord("\\"): 92, ord('"'): 34}


def parse_config(data):
    """Parses a file as `git config` does and returns its entries and section headers.

    Headers are returned too, because a section without keys has no entry but
    still counts where the format allows only one section.
    """
    if b"\0" in data:
        # Git cuts such values off silently, which would hide what the file says.
        raise ConfigError(1 + data.count(b"\n", 0, data.index(b"\0")), "NUL byte")
    # The end of the file ends a line, and also a line that a backslash continues.
    data = data.replace(b"\r\n", b"\n") + b"\n\n"
    position = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    section, subsection = "", None
    entries, headers = [], []
    line, counted = 1, 0
    while True:
        position = SPACE.match(data, position).end()
        line += data.count(b"\n", counted, position)
        counted = position
        if position == len(data):
            return entries, headers
        byte = data[position]
        if byte in b"#;":
            position = COMMENT.match(data, position).end()
            continue
        if byte == 0x5B:
            match = HEADER.match(data, position)
            if not match or match.group(0) == b"[]":
                raise ConfigError(line, "malformed section header")
            # `[a.B]` is an older spelling of `[a "b"]`; Git joins all parts with dots.
            name, dot, rest = match.group(1).lower().partition(b".")
            quoted = match.group(2)
            if quoted is not None:
                quoted = SUBSECTION_ESCAPE.sub(rb"\1", quoted)
                rest = rest + b"." + quoted if dot else quoted
                dot = b"."
            section = decode(name)
            subsection = decode(rest) if dot else None
            headers.append((section, subsection, line))
            position = match.end()
            continue
        match = KEY.match(data, position)
        if not match:
            raise ConfigError(line, "neither a section, a key nor a comment")
        key = decode(match.group(1).lower())
        position = match.end()
        byte = data[position]
        if byte == 0x0A:
            value = None
        elif byte == 0x3D:
            match = PLAIN_VALUE.match(data, position + 1)
            if match:
                value = INNER_SPACE.sub(b" ", match.group(1).strip(b" \t\r"))
                position = match.end()
            else:
                value, position = parse_value(data, position + 1)
        else:
            raise ConfigError(line, "no `=` after the key `%s`" % key)
        entries.append(Entry(section, subsection, key, value, line))


def parse_value(data, position):
    """Parses a value with quotes, escapes or comments and returns it with its end."""
    value = bytearray()
    spaces = 0
    quoted = False
    while True:
        byte = data[position]
        position += 1
        if byte == 0x0A:
            if quoted:
                line = data.count(b"\n", 0, position)
                raise ConfigError(line, "quote without an end")
            return bytes(value), position
        if byte in b" \t\r" and not quoted:
            # Spaces count only if something follows them, and never at the beginning.
            if value:
                spaces += 1
            continue
        if byte in b"#;" and not quoted:
            return bytes(value), COMMENT.match(data, position).end()
        value += b" " * spaces
        spaces = 0
        if byte == 0x5C:
            byte = data[position]
            position += 1
            if byte == 0x0A:
                continue
            if byte not in VALUE_ESCAPES:
                line = 1 + data.count(b"\n", 0, position)
                raise ConfigError(line, "unknown escape `\\%s`" % shown(chr(byte)))
            value.append(VALUE_ESCAPES[byte])
        elif byte == 0x22:
            quoted = not quoted
        else:
            value.append(byte)


def last_entry(entries, section, subsection, key):
    """Returns the entry that counts for a key, which is the last one."""
    found = None
    for entry in entries:
        if (entry.section, entry.subsection, entry.key) == (section, subsection, key):
            found = entry
    return found


def parse_boolean(text):
    """Returns the boolean that a value means to Git, or None if it is no boolean."""
    lower = text.lower()
    if lower in ("true", "yes", "on"):
        return True
    if lower in ("false", "no", "off", ""):
        return False
    return int(text) != 0 if is_number(text) else None


def is_number(text):
    """Tells if a text consists of ASCII digits only, without sign and unit."""
    return re.fullmatch(r"[0-9]+", text) is not None


def decode(data):
    """Decodes UTF-8 and marks bytes that are not; `check` reports such files."""
    return data.decode("utf-8", "replace")


def is_utf8(data):
    """Tells if bytes are UTF-8."""
    try:
        data.decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False


def shown(text):
    """Escapes control characters, so that a problem stays on one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# ---------------------------------------------------------------------------
# Single rules
# ---------------------------------------------------------------------------


def email_problem(email):
    """Returns the reason why an e-mail address is invalid, or None."""
    if len(email) > MAX_EMAIL:
        return "has more than %d characters" % MAX_EMAIL
    if any(c.isspace() or ord(c) < 32 or 127 <= ord(c) < 160 for c in email):
        return "contains a blank or control character"
    local, _, domain = email.partition("@")
    if email.count("@") != 1 or not local or not domain:
        return "needs exactly one `@` between two parts"
    return None


def password_problem(password):
    """Returns the reason why a hashed password cannot be decoded, or None."""
    parts = password.split(":")
    if len(parts) != 4:
        return "needs four parts"
    algorithm, cost, salt, digest = parts
    if algorithm not in ("bcrypt", "bcrypt0"):
        return "has an unknown algorithm"
    if not is_number(cost) or not 4 <= int(cost) <= 31:
        return "has a cost that is not a number from 4 to 31"
    for name, part, length in (("salt", salt, 16), ("hash", digest, 24)):
        decoded = strict_base64(part)
        if decoded is None or len(decoded) != length:
            return "has a %s that is not base64 of %d bytes" % (name, length)
    return None


def strict_base64(text):
    """Decodes base64 and returns None unless the text is its only spelling."""
    try:
        decoded = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return decoded if base64.b64encode(decoded).decode() == text else None


def parse_notify(value):
    """Splits `<filter> [<types>]` and returns filter, types and a problem or None."""
    value = value.strip()
    # A filter may contain brackets itself; the types are the last ones.
    opening = value.rfind("[")
    if opening < 0 or not value.endswith("]"):
        return None, None, "no `[types]` at the end of the notify value"
    filter_text = value[:opening].strip() or "*"
    inside = value[opening + 1:-1].strip()
    types = [name.strip() for name in inside.split(",")] if inside else []
    for name in types:
        if name not in NOTIFY_TYPES:
            return filter_text, types, "unknown notify type `%s`" % shown(name)
    problem = filter_problem(filter_text)
    return filter_text, types, problem


FILTER_TOKEN = re.compile(r'\s*(?:([()])|(-)|((?:"(?:[^"\\]|\\.)*"|[^\s()"])+)|$)')


def filter_problem(text):
    """Returns the reason why a filter is malformed, or None."""
    tokens = []
    position = 0
    while position < len(text):
        match = FILTER_TOKEN.match(text, position)
        if not match:
            return "quote without an end in the filter"
        if match.group(0).strip():
            tokens.append(match.group(0).strip())
        position = match.end()
    depth = 0
    expects_term = True
    for token in tokens:
        if token == "(":
            depth += 1
            expects_term = True
        elif token == ")":
            if expects_term or depth == 0:
                return "misplaced `)` in the filter"
            depth -= 1
        elif token == "OR":
            if expects_term:
                return "misplaced `OR` in the filter"
            expects_term = True
        elif token == "-":
            expects_term = True
        else:
            problem = term_problem(token)
            if problem:
                return problem
            expects_term = False
    if expects_term or depth:
        return "incomplete filter"
    return None


def term_problem(term):
    """Returns the reason why a term of a filter is unknown, or None."""
    if term == "*":
        return None
    operator, colon, value = term.partition(":")
    value = value.strip('"')
    if colon and value and operator in FILTERS_WITH_ANY_VALUE:
        if value.startswith("^") and operator != "label":
            return "regular expression instead of a glob in `%s`" % shown(term)
        return None
    if colon and value in FILTERS_WITH_FIXED_VALUES.get(operator, ()):
        return None
    return "unknown filter `%s`" % shown(term)


KEY_TYPES = frozenset((
    "ssh-ed25519", "ssh-rsa", "ssh-dss", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521", "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com"))
POINT_LENGTH = {b"nistp256": 65, b"nistp384": 97, b"nistp521": 133}
KEY_OPTION = re.compile(r'([A-Za-z0-9-]+)(?:="((?:[^"\\]|\\.)*)")?(,|[ \t]+)')


def key_problem(line):
    """Returns the reason why a line of `authorized_keys` is not an accepted key, or None."""
    rest = line
    while rest.split(None, 1)[0] not in KEY_TYPES:
        match = KEY_OPTION.match(rest)
        if not match:
            return "not an SSH key"
        name, value, separator = match.groups()
        if name.lower() not in ("from", "expiry-time"):
            # Without this word the line could be anything, so it is not called an option.
            return "option `%s` is not allowed" % name if value is not None or \
                separator == "," else "not an SSH key"
        if not value:
            return "option `%s` without a value" % name
        if name.lower() == "expiry-time" and not re.fullmatch(
                r"[0-9]{8}(?:[0-9]{4}(?:[0-9]{2})?)?Z?", value):
            return "option `expiry-time` is not a time"
        rest = rest[match.end():]
        if not rest.strip():
            return "not an SSH key"
    words = rest.split()
    kind = words[0]
    blob = strict_base64(words[1]) if len(words) > 1 else None
    fields = wire_fields(blob)
    if not fields or fields[0] != kind.encode():
        return "the key cannot be decoded"
    if kind == "ssh-dss":
        return "DSA keys are not accepted"
    if kind == "ssh-rsa":
        if len(fields) != 3 or not fields[1] or not fields[2]:
            return "the key cannot be decoded"
        if int.from_bytes(fields[2], "big").bit_length() < MIN_RSA_BITS:
            return "RSA keys below %d bits are not accepted" % MIN_RSA_BITS
        return None
    # Keys of security tokens carry the name of an application at the end.
    expected = 2 if kind in ("ssh-ed25519",) else 3
    expected += 1 if kind == "sk-ecdsa-sha2-nistp256@openssh.com" else 0
    if len(fields) != expected:
        return "the key cannot be decoded"
    if "ed25519" in kind:
        return None if len(fields[1]) == 32 else "the key cannot be decoded"
    curve, point = fields[1], fields[2]
    if curve not in kind.encode() or len(point) != POINT_LENGTH.get(curve) or point[0] != 4:
        return "the key cannot be decoded"
    return None


def wire_fields(blob):
    """Splits an SSH key into its fields, or returns None if the lengths do not fit."""
    if blob is None:
        return None
    fields = []
    position = 0
    while position < len(blob):
        if position + 4 > len(blob):
            return None
        (length,) = struct.unpack_from(">I", blob, position)
        position += 4
        if position + length > len(blob):
            return None
        fields.append(blob[position:position + length])
        position += length
    return fields


def note_name(key):
    """Returns the name of the note that holds an external ID."""
    return hashlib.sha1(key.encode("utf-8")).hexdigest()


def shard(number):
    """Returns the folder of a number in the name of a ref."""
    return "%02d" % (number % 100)


USER_BRANCH = re.compile(r"refs/users/([0-9]+)/([1-9][0-9]*)")


def is_user_branch(name):
    """Tells if this is the name of a branch of an account, in the right folder."""
    user = USER_BRANCH.fullmatch(name)
    return user is not None and user.group(1) == shard(int(user.group(2)))


# ---------------------------------------------------------------------------
# Access to a repository
# ---------------------------------------------------------------------------


class GitError(Exception):
    """A failure of the `git` program."""


def git_environment():
    """Returns an environment in which no setting of the user changes a result."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env.update(GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.devnull, LC_ALL="C",
               GIT_TERMINAL_PROMPT="0")
    return env


class Repository:
    """A repository, which is read with as few processes as possible."""

    def __init__(self, directory):
        inner = os.path.join(directory, ".git")
        self.bare = not os.path.exists(inner)
        self.git_dir = directory if self.bare else inner

    def git(self, *arguments, stdin=b""):
        """Runs `git` and returns its standard output."""
        # Replacement refs would show objects other than those the refs name.
        command = ["git", "--no-replace-objects", "--git-dir", self.git_dir, *arguments]
        done = subprocess.run(command, input=stdin, env=git_environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise GitError("git %s: %s" % (arguments[0], decode(done.stderr).strip()))
        return done.stdout

    def refs(self):
        """Returns the object of each ref, and the refs that are only names of others."""
        refs, symbolic = {}, {}
        listing = self.git("for-each-ref", "--format=%(objectname) %(refname) %(symref)")
        for line in listing.decode("utf-8", "surrogateescape").splitlines():
            oid, name, target = line.split(" ", 2)
            if target:
                symbolic[name] = target
            else:
                refs[name] = oid
        return refs, symbolic

    def headers(self, oids):
        """Returns type and size of objects; a missing object has the type `missing`."""
        oids = list(dict.fromkeys(oids))
        result = {}
        if oids:
            for line in self.git("cat-file", "--batch-check", "--buffer",
                                 stdin=("\n".join(oids) + "\n").encode()).splitlines():
                words = line.decode().split()
                result[words[0]] = (words[1], int(words[2]) if len(words) > 2 else 0)
        return result

    def objects(self, oids):
        """Returns the content of objects; a missing object has none."""
        oids = list(dict.fromkeys(oids))
        result = {}
        if not oids:
            return result
        output = self.git("cat-file", "--batch", "--buffer",
                          stdin=("\n".join(oids) + "\n").encode())
        position = 0
        while position < len(output):
            end = output.index(b"\n", position)
            words = output[position:end].decode().split()
            position = end + 1
            if words[1] == "missing":
                continue
            size = int(words[2])
            result[words[0]] = output[position:position + size]
            position += size + 1
        return result

    def trees_of_commits(self, oids):
        """Returns the tree of each commit."""
        return {oid: content[5:content.index(b"\n")].decode()
                for oid, content in self.objects(oids).items()}

    def history(self, oids):
        """Returns time and parents of all commits that can be reached from some."""
        commits = {}
        oids = list(oids)
        if oids:
            listing = self.git("rev-list", "--timestamp", "--parents", "--stdin",
                               stdin=("\n".join(oids) + "\n").encode())
            for line in listing.decode().splitlines():
                words = line.split()
                commits[words[1]] = (int(words[0]), words[2:])
        return commits


def parse_tree(data, id_length):
    """Yields mode, name and object of each entry of a tree."""
    position = 0
    while position < len(data):
        blank = data.index(b" ", position)
        end = data.index(b"\0", blank)
        yield (data[position:blank].decode(), data[blank + 1:end].decode("utf-8", "surrogateescape"),
               data[end + 1:end + 1 + id_length].hex())
        position = end + 1 + id_length


# ---------------------------------------------------------------------------
# Reader
# ---------------------------------------------------------------------------


class Reader:
    """Reads all data once, and collects values and problems side by side."""

    def __init__(self, repository):
        self.repository = repository
        self.problems = []
        self.users = {}          # number -> (ref, commit)
        self.stars = []          # (ref, change, account, blob)
        self.single = {}         # ref -> object, for refs that exist only once
        self.accounts = {}       # number -> account as in the output
        self.external_ids = []
        self.default_preferences = {}
        self.next_account = None
        self.id_length = 20

    def problem(self, ref, text, file=None, line=None):
        """Records a problem."""
        place = ref if file is None else "%s:%s" % (ref, file)
        place = place if line is None else "%s:%d" % (place, line)
        self.problems.append(shown("%s: %s" % (place, text)))

    def read(self):
        """Reads the repository and returns the document that `show` prints."""
        self.read_refs()
        self.read_external_ids()
        self.read_users()
        self.read_defaults()
        self.check_emails()
        self.check_usernames()
        self.read_stars()
        self.read_sequence()
        self.check_config()
        return {
            "accounts": [self.accounts[number] for number in sorted(self.accounts)],
            "default_preferences": self.default_preferences,
            "next_account": self.next_account,
        }

    # Refs

    def read_refs(self):
        """Sorts the refs by kind and reports names and types that do not fit."""
        refs, symbolic = self.repository.refs()
        for name in symbolic:
            if not self.is_private(name):
                self.problem(name, "is only another name of %s" % symbolic[name])
        types = self.repository.headers(refs.values())
        for name, oid in refs.items():
            self.id_length = len(oid) // 2
            user = USER_BRANCH.fullmatch(name)
            star = re.fullmatch(
                r"refs/starred-changes/([0-9]+)/([1-9][0-9]*)/([1-9][0-9]*)", name)
            wanted = "commit"
            if user:
                if user.group(1) != shard(int(user.group(2))):
                    self.problem(name, "not a user branch: account %s belongs in refs/users/%s/"
                                 % (user.group(2), shard(int(user.group(2)))))
                    continue
            elif star:
                if star.group(1) != shard(int(star.group(2))):
                    self.problem(name, "not a star: change %s belongs in "
                                 "refs/starred-changes/%s/"
                                 % (star.group(2), shard(int(star.group(2)))))
                    continue
                wanted = "blob"
            elif name == SEQUENCE:
                wanted = "blob"
            elif name == "refs/users/self":
                # Copies that an account has fetched have it, as another name of a branch.
                if oid not in [refs[known] for known in refs if is_user_branch(known)]:
                    self.problem(name, "stands for the branch of the caller, and none is there")
                continue
            elif name.startswith("refs/users/") and name != DEFAULTS:
                self.problem(name, "not a user branch")
                continue
            elif name.startswith("refs/starred-changes/"):
                self.problem(name, "not a star")
                continue
            elif name not in (DEFAULTS, EXTERNAL_IDS, CONFIG):
                if not self.is_private(name):
                    self.problem(name, "unknown ref")
                continue
            found = types[oid][0]
            if found != wanted:
                self.problem(name, "points to a %s object, not to a %s" % (found, wanted)
                             if found != "missing" else "points to a missing object")
                continue
            if user:
                self.users[int(user.group(2))] = (name, oid)
            elif star:
                self.stars.append((name, int(star.group(2)), int(star.group(3)), oid))
            else:
                self.single[name] = oid

    def is_private(self, name):
        """Tells if a ref belongs to the owner of a clone and not to the data."""
        return not self.repository.bare and name.startswith(
            ("refs/heads/", "refs/remotes/", "refs/tags/", "refs/notes/", "refs/stash"))

    # External IDs

    def read_external_ids(self):
        """Reads the notes, with any fan-out."""
        if EXTERNAL_IDS not in self.single:
            return
        commit = self.single[EXTERNAL_IDS]
        notes = {}
        level = [("", self.repository.trees_of_commits([commit])[commit])]
        while level:
            trees = self.repository.objects(oid for _, oid in level)
            below = []
            for folder, tree in level:
                if tree not in trees:
                    self.problem(EXTERNAL_IDS, "missing tree", folder or None)
                    continue
                for mode, name, oid in parse_tree(trees[tree], self.id_length):
                    path = folder + name
                    if mode == "40000" and re.fullmatch(r"[0-9a-f]{2}", name) \
                            and len(path.replace("/", "")) < 40:
                        below.append((path + "/", oid))
                    elif mode.startswith("100") and re.fullmatch(
                            r"[0-9a-f]{40}", path.replace("/", "")):
                        notes.setdefault(path.replace("/", ""), []).append((path, oid))
                    else:
                        self.problem(EXTERNAL_IDS, "not a note", path)
            level = below
        contents = self.repository.objects(
            oid for places in notes.values() for _, oid in places)
        for name in sorted(notes):
            places = sorted(notes[name])
            if len(places) > 1:
                self.problem(EXTERNAL_IDS, "the note %s is there %d times: %s" % (
                    name, len(places), ", ".join(path for path, _ in places)))
            for path, oid in places:
                if oid in contents:
                    self.read_note(name, path, contents[oid])
                else:
                    self.problem(EXTERNAL_IDS, "missing object", path)

    def read_note(self, name, path, content):
        """Reads one external ID and keeps it if it names an account."""
        if len(content) > MAX_NOTE:
            self.problem(EXTERNAL_IDS, "more than %d bytes" % MAX_NOTE, path)
        parsed = self.parse(EXTERNAL_IDS, path, content)
        if parsed is None:
            return
        entries, headers = parsed
        keys = list(dict.fromkeys(sub for section, sub, _ in headers if section == "externalid"))
        if len(keys) != 1 or keys[0] is None:
            self.problem(EXTERNAL_IDS, "needs exactly one section [externalId \"<scheme>:<id>\"]"
                         ", found %d" % sum(key is not None for key in keys), path)
            if not keys or keys[0] is None:
                return
        key = keys[0]
        line = next(line for section, sub, line in headers
                    if section == "externalid" and sub == key)
        scheme, colon, identity = key.partition(":")
        if not colon or not scheme or not identity:
            self.problem(EXTERNAL_IDS, "the key `%s` is not <scheme>:<id>" % key, path, line)
        if note_name(key) != name:
            self.problem(EXTERNAL_IDS, "the name of the note is not the SHA-1 of `%s`, which is %s"
                         % (key, note_name(key)), path, line)
        if scheme == "username" and identity != identity.lower():
            self.problem(EXTERNAL_IDS, "the user name `%s` is not lower case" % identity, path, line)
        email = last_entry(entries, "externalid", key, "email")
        if email and email.text():
            reason = email_problem(email.text())
            if reason:
                self.problem(EXTERNAL_IDS, "invalid e-mail `%s`: it %s" % (email.text(), reason),
                             path, email.line)
        password = last_entry(entries, "externalid", key, "password")
        if password and scheme == "username":
            # The message leaves the value out, because it is a secret.
            reason = password_problem(password.text())
            if reason:
                self.problem(EXTERNAL_IDS, "the password cannot be decoded: it %s" % reason,
                             path, password.line)
        account = last_entry(entries, "externalid", key, "accountid")
        if account is None:
            self.problem(EXTERNAL_IDS, "no accountId", path, line)
            return
        if not is_number(account.text()):
            self.problem(EXTERNAL_IDS, "the accountId `%s` is not a number" % account.text(),
                         path, account.line)
            return
        number = int(account.text())
        if number not in self.users:
            self.problem(EXTERNAL_IDS, "the account %d does not exist" % number,
                         path, account.line)
        self.external_ids.append({
            "account": number, "key": key, "email": email.text() if email else "",
            "password": bool(password and password.text())})

    def check_usernames(self):
        """Reports accounts with several user names."""
        names = {}
        for external_id in self.external_ids:
            if external_id["key"].startswith("username:"):
                names.setdefault(external_id["account"], []).append(external_id["key"])
        for account, keys in sorted(names.items()):
            if len(keys) > 1:
                self.problem(EXTERNAL_IDS, "account %d has more than one user name: %s"
                             % (account, ", ".join(sorted(keys))))

    def check_emails(self):
        """Reports addresses that several accounts have."""
        owners = {}
        for external_id in self.external_ids:
            if external_id["email"]:
                owners.setdefault(external_id["email"].lower(), []).append(external_id)
        for email, found in owners.items():
            if len({external_id["account"] for external_id in found}) > 1:
                names = sorted("%s (account %d)" % (e["key"], e["account"]) for e in found)
                self.problem(EXTERNAL_IDS, "the e-mail `%s` is on more than one account: %s"
                             % (email, ", ".join(names)))

    # User branches

    def read_users(self):
        """Reads all user branches."""
        tips = {commit for _, commit in self.users.values()}
        commits = self.repository.history(tips)
        trees = self.repository.trees_of_commits(tips)
        files = self.read_files({commit: trees[commit] for commit in tips})
        ids_of = {}
        for external_id in self.external_ids:
            ids_of.setdefault(external_id["account"], []).append(external_id)
        for number, (ref, commit) in self.users.items():
            account = {"_account_id": number}
            time, parents = self.check_history(ref, commit, commits)
            account["registered_on"] = datetime.datetime.fromtimestamp(
                time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            own_ids = ids_of.get(number, [])
            self.check_sizes(ref, files[commit])
            contents = files[commit]["contents"]
            self.read_properties(account, ref, contents.get("account.config"), own_ids)
            preferences = self.read_preferences(ref, contents.get("preferences.config"))
            watches = self.read_watches(ref, contents.get("watch.config"))
            ssh_keys = self.read_ssh_keys(ref, contents.get("authorized_keys"))
            external_ids = self.external_ids_of(ref, own_ids)
            for name, value in (("preferences", preferences), ("watches", watches),
                                ("ssh_keys", ssh_keys), ("external_ids", external_ids)):
                if value:
                    account[name] = value
            self.accounts[number] = account

    def check_history(self, ref, commit, commits):
        """Reports merges and returns time and parents of the first commit."""
        seen, waiting = set(), [commit]
        while waiting:
            oid = waiting.pop()
            if oid not in seen:
                seen.add(oid)
                parents = commits[oid][1]
                waiting.extend(parents)
                if len(parents) > 1:
                    self.problem(ref, "the commit %s is a merge" % oid)
        while commits[commit][1]:
            commit = commits[commit][1][0]
        return commits[commit]

    KNOWN_FILES = ("account.config", "preferences.config", "watch.config", "authorized_keys",
                   "project.config", "groups.config", "rights.config")

    def read_files(self, roots):
        """Reads sizes of all files, and known files whole, of the trees of some commits."""
        result = {commit: {"entries": [], "contents": {}, "odd": [], "missing": []}
                  for commit in roots}
        level = [(commit, "", tree) for commit, tree in roots.items()]
        while level:
            trees = self.repository.objects(tree for _, _, tree in level)
            below = []
            for commit, folder, tree in level:
                if tree not in trees:
                    result[commit]["missing"].append(folder or None)
                    continue
                for mode, name, oid in parse_tree(trees[tree], self.id_length):
                    path = folder + name
                    if path in self.KNOWN_FILES and not mode.startswith("100"):
                        result[commit]["odd"].append(path)
                    if mode == "40000":
                        below.append((commit, path + "/", oid))
                    elif mode != "160000":
                        result[commit]["entries"].append((path, mode, oid))
            level = below
        sizes = self.repository.headers(
            oid for files in result.values() for _, _, oid in files["entries"])
        blobs = self.repository.objects(
            oid for files in result.values() for path, mode, oid in files["entries"]
            if path in self.KNOWN_FILES and mode.startswith("100"))
        for files in result.values():
            for path, mode, oid in files["entries"]:
                if path in self.KNOWN_FILES and mode.startswith("100") and oid in blobs:
                    files["contents"][path] = blobs[oid]
            files["missing"] += [path for path, _, oid in files["entries"]
                                 if sizes[oid][0] == "missing"]
            files["sizes"] = [(path, sizes[oid][1]) for path, _, oid in files["entries"]]
        return result

    def check_sizes(self, ref, files):
        """Reports files that cannot be read, and branches that are too large."""
        for path in files["missing"]:
            self.problem(ref, "missing object", path)
        for path in files["odd"]:
            self.problem(ref, "is not a file", path)
        for path, size in files["sizes"]:
            if size > MAX_FILE:
                self.problem(ref, "more than %d bytes" % MAX_FILE, path)
        if len(files["sizes"]) > MAX_FILES:
            self.problem(ref, "more than %d files" % MAX_FILES)
        if sum(size for _, size in files["sizes"]) > MAX_BRANCH:
            self.problem(ref, "more than %d bytes" % MAX_BRANCH)

    def parse(self, ref, file, content):
        """Parses a Git config file, or reports why that is impossible."""
        if not is_utf8(content):
            self.problem(ref, "is not UTF-8", file)
        try:
            return parse_config(content)
        except ConfigError as error:
            self.problem(ref, error.reason, file, error.line)
            return None

    def read_properties(self, account, ref, content, external_ids):
        """Reads `account.config` and the user name into an account."""
        file = "account.config"
        parsed = self.parse(ref, file, content) if content is not None else None
        entries = parsed[0] if parsed else []
        for name, key in (("name", "fullname"), ("email", "preferredemail"), ("status", "status")):
            entry = last_entry(entries, "account", None, key)
            if entry and entry.text():
                account[name] = entry.text()
        email = last_entry(entries, "account", None, "preferredemail")
        if email and email.text():
            reason = email_problem(email.text())
            known = {external_id["email"].lower() for external_id in external_ids}
            if reason:
                self.problem(ref, "invalid preferredEmail `%s`: it %s" % (email.text(), reason),
                             file, email.line)
            elif email.text().lower() not in known:
                self.problem(ref, "the preferredEmail `%s` is on no external ID of the account"
                             % email.text(), file, email.line)
        active = last_entry(entries, "account", None, "active")
        if active:
            value = parse_boolean(active.text())
            if value is None:
                self.problem(ref, "`active` is not a boolean: `%s`" % active.text(),
                             file, active.line)
            elif not value:
                account["inactive"] = True
        names = sorted(external_id["key"][len("username:"):] for external_id in external_ids
                       if external_id["key"].startswith("username:"))
        if names:
            account["username"] = names[0]

    def read_preferences(self, ref, content):
        """Returns the preferences by section."""
        parsed = self.parse(ref, "preferences.config", content) if content is not None else None
        result = {}
        lines = {}
        for entry in parsed[0] if parsed else []:
            if entry.section in PREFERENCES and entry.subsection is None:
                name = SPELLING[entry.section].get(entry.key, entry.key)
                result.setdefault(entry.section, {})[name] = entry.text()
                lines[entry.section, name] = entry.line
        for section, values in result.items():
            for name, value in values.items():
                kind = PREFERENCES[section].get(name, TEXT)
                # Only the number of lines of context has a value for "all".
                if (section, name, value) == ("diff", "context", "-1"):
                    continue
                if (kind == INTEGER and not is_number(value)) or \
                        (kind == BOOLEAN and parse_boolean(value) is None):
                    self.problem(ref, "%s.%s is not a%s: `%s`" % (
                        section, name, "n integer" if kind == INTEGER else " boolean", value),
                        "preferences.config", lines[section, name])
        return result

    def read_watches(self, ref, content):
        """Returns the watches in the order of the file."""
        file = "watch.config"
        parsed = self.parse(ref, file, content) if content is not None else None
        projects = {}
        count = 0
        for entry in parsed[0] if parsed else []:
            if entry.section != "project" or entry.key != "notify":
                continue
            count += 1
            if not entry.subsection:
                self.problem(ref, "a watch without the name of a project", file, entry.line)
                continue
            filter_text, types, problem = parse_notify(entry.text())
            if problem:
                self.problem(ref, "%s: `%s`" % (problem, entry.text()), file, entry.line)
            else:
                projects.setdefault(entry.subsection, []).append(
                    {"filter": filter_text, "types": types})
        if count > MAX_WATCHES:
            self.problem(ref, "more than %d watches" % MAX_WATCHES, file)
        return [{"project": name, "notify": notify} for name, notify in projects.items()]

    def read_ssh_keys(self, ref, content):
        """Returns the SSH keys with their numbers."""
        file = "authorized_keys"
        keys = []
        number = 0
        if content is not None and not is_utf8(content):
            self.problem(ref, "is not UTF-8", file)
        for line, text in enumerate(decode(content or b"").split("\n"), 1):
            text = text.strip()
            if text.startswith("# INVALID "):
                number += 1
                keys.append({"seq": number, "key": text[len("# INVALID "):].strip(),
                             "valid": False})
            elif re.match(r"# DELETED(?:\s|$)", text):
                number += 1
            elif text and not text.startswith("#"):
                number += 1
                keys.append({"seq": number, "key": text, "valid": True})
                reason = key_problem(text)
                if reason:
                    self.problem(ref, reason, file, line)
        if len(keys) > MAX_KEYS:
            self.problem(ref, "more than %d keys" % MAX_KEYS, file)
        return keys

    def external_ids_of(self, ref, own_ids):
        """Returns the external IDs of one account, by key."""
        if len(own_ids) > MAX_EXTERNAL_IDS:
            self.problem(ref, "more than %d external IDs" % MAX_EXTERNAL_IDS)
        result = []
        for external_id in sorted(own_ids, key=lambda e: e["key"]):
            shown_id = {"key": external_id["key"]}
            if external_id["email"]:
                shown_id["email"] = external_id["email"]
            if external_id["password"]:
                shown_id["has_password"] = True
            result.append(shown_id)
        return result

    def read_defaults(self):
        """Reads the preferences that hold for everybody."""
        if DEFAULTS in self.single:
            files = self.files_of(DEFAULTS)
            self.default_preferences = self.read_preferences(
                DEFAULTS, files["contents"].get("preferences.config"))

    def files_of(self, ref):
        """Reads the files of a branch that is not the branch of a user."""
        commit = self.single[ref]
        files = self.read_files(self.repository.trees_of_commits([commit]))[commit]
        for path in files["missing"]:
            self.problem(ref, "missing object", path)
        for path in files["odd"]:
            self.problem(ref, "is not a file", path)
        return files

    # Stars, sequence and configuration

    def read_stars(self):
        """Reads the labels of all stars into the accounts."""
        blobs = self.repository.objects(oid for _, _, _, oid in self.stars)
        for ref, change, number, oid in sorted(self.stars, key=lambda star: star[1:3]):
            content = blobs[oid]
            if not is_utf8(content):
                self.problem(ref, "is not UTF-8")
            text = decode(content)
            labels = (text[:-1] if text.endswith("\n") else text).split("\n")
            if not text.strip():
                self.problem(ref, "has no labels")
                labels = []
            for label in labels:
                if not label or any(c.isspace() for c in label):
                    self.problem(ref, "the label `%s` is empty or contains a blank" % label)
                elif len(label) > MAX_LABEL:
                    self.problem(ref, "a label has more than %d characters" % MAX_LABEL)
            if labels != sorted(set(labels)):
                self.problem(ref, "the labels are not sorted, or one is there twice")
            if len(labels) > MAX_LABELS:
                self.problem(ref, "more than %d labels" % MAX_LABELS)
            if "star" in labels and "ignore" in labels:
                self.problem(ref, "`star` and `ignore` exclude each other")
            if number not in self.users:
                self.problem(ref, "the account %d does not exist" % number)
            elif labels:
                self.accounts[number].setdefault("starred_changes", []).append(
                    {"change": change, "labels": sorted(set(labels))})

    def read_sequence(self):
        """Reads the next account number."""
        if SEQUENCE not in self.single:
            return
        oid = self.single[SEQUENCE]
        text = decode(self.repository.objects([oid])[oid]).strip()
        if not is_number(text):
            self.problem(SEQUENCE, "not a number: `%s`" % text)
            return
        self.next_account = int(text)
        highest = max(self.users, default=None)
        if highest is not None and self.next_account <= highest:
            self.problem(SEQUENCE, "%s is not above the highest account %d" % (text, highest))

    def check_config(self):
        """Reports files of the configuration that do not parse, and wrong groups."""
        if CONFIG not in self.single:
            return
        contents = self.files_of(CONFIG)["contents"]
        files = {}
        for file in ("project.config", "groups.config", "rights.config"):
            parsed = self.parse(CONFIG, file, contents[file]) if file in contents else None
            files[file] = parsed or ([], [])
        entries, headers = files["groups.config"]
        names = {sub for section, sub, _ in headers if section == "group"}
        built_in = {"Anonymous Users", "Registered Users", "Administrators"}
        self.check_rules(files["project.config"][0], names | built_in)
        includes = {name: set() for name in names}
        for entry in entries:
            if entry.section != "group":
                continue
            value = entry.text()
            if entry.key == "member" and not (is_number(value) and int(value) in self.users):
                self.problem(CONFIG, "the member `%s` is not an account" % value,
                             "groups.config", entry.line)
            if entry.key == "include" and value.startswith("group "):
                included = value[len("group "):].strip()
                includes[entry.subsection].add(included)
                if included not in names | built_in:
                    self.problem(CONFIG, "the group `%s` does not exist" % included,
                                 "groups.config", entry.line)
        for name in names:
            reached, waiting = set(), list(includes[name])
            while waiting:
                other = waiting.pop()
                if other not in reached:
                    reached.add(other)
                    waiting.extend(includes.get(other, ()))
            if name in reached:
                self.problem(CONFIG, "the group `%s` includes itself" % name, "groups.config")

    CAPABILITIES = ("administrateserver", "modifyaccount", "accessdatabase")

    def check_rules(self, entries, groups):
        """Reports unknown capabilities, and rules about groups that do not exist."""
        for entry in entries:
            is_rule = entry.section == "access" and entry.key.lower() in ("read", "push")
            is_capability = entry.section == "capability" and entry.subsection is None
            if is_capability and entry.key.lower() not in self.CAPABILITIES:
                self.problem(CONFIG, "unknown capability `%s`" % entry.key,
                             "project.config", entry.line)
                continue
            if not is_rule and not is_capability:
                continue
            prefix = r"(?:(?:deny|block) )?group (.+)" if is_rule else r"group (.+)"
            match = re.fullmatch(prefix, entry.text() or "")
            if match is None or match.group(1).strip() not in groups:
                self.problem(CONFIG, "`%s` names no group" % entry.text(),
                             "project.config", entry.line)


# ---------------------------------------------------------------------------
# Writer
# ---------------------------------------------------------------------------

FIRST_NAMES = (
    "Jörg", "Zoë", "Łukasz", "Anna", "Øyvind", "Björk", "François", "Mária", "Ömer", "Ute",
    "山田", "Олена", "Ægir", "Noël", "Siân", "John", "Nguyễn", "Ana María", "Günther", "Ida")
LAST_NAMES = (
    "Müller", "O'Brien", "Groß", "van der Berg", "Ångström", "Łuczak", "Doe", "Öztürk", "Núñez",
    "D'Angelo", "Køhler", "太郎", "Шевченко", "Smith-Jones", "Weiß", "Lee", "Çelik", "Żak")
NAME_FORMS = (
    "{f} {l}", "{f} {l}", "{f} {l}", '{f} "{n}" {l}', "{f} {l}, PhD; Ops", "{f} {l} #1",
    "{f}  {l}", "{f} {l} \\ Infra", "Dr. {f} {l} (ext.)", "{f} {l} 🦀", '"{f}" {l}')
NICKNAMES = ("Jojo", "the Fixer", "Süße", "#root", "semi;colon")
STATUSES = (
    "OOO", "On holiday until 2026-03-01", "Elternzeit – zurück im März", 'Says "hi"; really',
    "busy # do not ask", "C:\\temp", "🏖", "on call = yes", "[away]", "50 % only")
PROJECTS = (
    "github.com/acme/infra", "github.com/acme/Infra", "gitlab.com/group/sub/Projekt-Ä",
    "All-Projects", "ghe.acme.com/ops/net.work", "dev.azure.com/acme/My Project/repo",
    "github.com/acme/modules", "gitea.example.org/x/y#z")
# The server may know no repository of this name, but the file format allows it.
ODD_PROJECT = 'example.org/odd "name"\\x]'
WATCH_FILTERS = (
    "branch:main", "branch:release-*", "dir:prod/**", "dir:prod/** owner:self",
    "workspace:staging", "project:net -author:bot", "is:starred", "is:draft OR is:failed",
    "-(is:destroying dir:test/**)", 'label:"needs review"', 'dir:"with space/**" owner:self',
    "branch:main (dir:a/** OR dir:b/**)", "author:j*", "branch:v[0-9]*", 'label:"a;b"',
    "branch:fix-#12")
LABELS = ("star", "ignore", "blue", "größer", "review/later", "zz-top", "42", "Äpfel", "red")

# Values that a user may choose; the first one is the usual default and never written.
CHOICES = {
    "showSiteHeader": ("true", "false"),
    "theme": ("AUTO", "DARK", "LIGHT"),
    "timeZone": ("", "Europe/Berlin", "America/Argentina/Buenos_Aires", "UTC"),
    "dateFormat": ("STD", "US", "ISO", "EURO", "UK"),
    "timeFormat": ("HHMM_12", "HHMM_24"),
    "changesPerPage": ("25", "10", "50", "100"),
    "emailStrategy": ("ENABLED", "CC_ON_OWN_COMMENTS", "DISABLED"),
    "emailFormat": ("HTML_PLAINTEXT", "PLAINTEXT"),
    "context": ("10", "3", "25", "50", "100"),
    "lineLength": ("100", "72", "80", "120"),
    "tabSize": ("8", "2", "4"),
    "fontSize": ("12", "11", "14", "16"),
    "showTabs": ("true", "false"),
    "lineWrapping": ("false", "true"),
    "ignoreWhitespace": ("IGNORE_NONE", "IGNORE_TRAILING", "IGNORE_ALL"),
    "hideTopMenu": ("false", "true"),
    "manualReview": ("false", "true"),
    "indentWithTabs": ("false", "true"),
    "hideLineNumbers": ("false", "true"),
}
DEFAULT_PREFERENCES = {
    "general": {"changesPerPage": "50", "timeFormat": "HHMM_24"},
    "diff": {"tabSize": "4", "showTabs": "false"},
    "edit": {"lineLength": "80"},
}
SERVER = "All-Users Server <server@example.com>"
EPOCH = 1577836800


class ConfigWriter:
    """Writes Git config files in plain and in odd, but valid, spellings."""

    COMMENTS = ("# kept by hand", "; old style", "#", "#no blank = \"", "; [account] fullName = x",
                "# Größe")

    def __init__(self, rng):
        self.rng = rng

    def render(self, sections):
        """Writes sections, each a name, a subsection or None, and pairs of key and value."""
        rng = self.rng
        self.odd = rng.random() < 0.6
        newline = "\r\n" if self.odd and rng.random() < 0.1 else "\n"
        indent = rng.choice(("\t", "  ", "", " \t ")) if self.odd else "\t"
        lines = [self.comment()] if self.sometimes(0.3) else []
        for section, subsection, pairs in sections:
            header = self.header(section, subsection)
            keys = []
            for key, value in pairs:
                if self.sometimes(0.1):
                    keys.append(indent + self.comment())
                if self.sometimes(0.05):
                    keys.append(rng.choice(("", "  ", "\t")))
                keys.append(indent + self.key_and_value(key, value))
            if keys and not self.is_comment(keys[0]) and self.sometimes(0.15):
                header += " " + keys.pop(0).lstrip()
            elif self.sometimes(0.15):
                header += " " + self.comment()
            lines.append(header)
            lines.extend(keys)
            if self.sometimes(0.2):
                lines.append("")
        text = "\n".join(lines) + ("" if self.sometimes(0.1) else "\n")
        data = text.replace("\n", newline).encode("utf-8")
        return b"\xef\xbb\xbf" + data if self.sometimes(0.03) else data

    def sometimes(self, chance):
        """Decides about an odd spelling; a plain file never has one."""
        return self.odd and self.rng.random() < chance

    def comment(self):
        return self.rng.choice(self.COMMENTS)

    @staticmethod
    def is_comment(line):
        return not line.strip() or line.strip()[0] in "#;"

    def spelling(self, name):
        """Spells a name without case in another case now and then."""
        return self.rng.choice((name.lower(), name.upper(), name.capitalize())) \
            if self.sometimes(0.2) else name

    def header(self, section, subsection):
        name = self.spelling(section)
        if subsection is None:
            return "[%s]" % name
        escaped = "".join("\\" + c if c in '"\\' else c for c in subsection)
        if escaped and escaped[0].isalpha() and self.sometimes(0.1):
            # In a subsection, a backslash makes any character stand for itself.
            escaped = "\\" + escaped
        return '[%s%s"%s"]' % (name, "  \t" if self.sometimes(0.1) else " ", escaped)

    def key_and_value(self, key, value):
        """Writes one key; a value of None has no `=`."""
        name = self.spelling(key)
        if value is None:
            # A comment cannot follow here, because Git would take it for a mistake.
            return name + ("  " if self.sometimes(0.3) else "")
        equals = self.rng.choice(("=", " =", "= ", "  =   ", "\t=\t")) \
            if self.sometimes(0.4) else " = "
        text = name + equals + self.value(value)
        if self.sometimes(0.1):
            text += self.rng.choice((" # why", "\t; why", " #", '  # "x\\'))
        elif self.sometimes(0.1):
            text += " \t"
        return text

    ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"}

    def value(self, value):
        """Writes a value with quotes where it needs them, or elsewhere too."""
        atoms = [self.ESCAPES.get(c, c) for c in value]
        delicate = [i for i, c in enumerate(value) if c in "#;"]
        if value[:1] == " ":
            delicate.append(0)
        if value[-1:] == " ":
            delicate.append(len(value) - 1)
        if delicate or self.sometimes(0.3):
            start = min(delicate, default=len(value))
            end = max(delicate, default=0) + 1
            start = self.rng.randint(0, start) if self.odd else 0
            end = self.rng.randint(max(start, end), max(start, len(value), end)) \
                if self.odd else len(value)
            atoms.insert(min(end, len(atoms)), '"')
            atoms.insert(start, '"')
        if len(atoms) > 6 and self.sometimes(0.1):
            # The next line starts at once, because its blanks would belong to the value.
            atoms.insert(self.rng.randint(1, len(atoms) - 1), "\\\n")
        return "".join(atoms)


class KeyMaker:
    """Makes public SSH keys that any program can decode."""

    ED25519_P = 2 ** 255 - 19
    ED25519_D = -121665 * pow(121666, ED25519_P - 2, ED25519_P) % ED25519_P
    P256_P = 2 ** 256 - 2 ** 224 + 2 ** 192 + 2 ** 96 - 1
    P256_B = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b

    def __init__(self, rng):
        self.rng = rng

    @staticmethod
    def text(kind, *fields):
        """Returns the type and the base64 of a key."""
        blob = b"".join(struct.pack(">I", len(field)) + field
                        for field in (kind.encode(),) + fields)
        return "%s %s" % (kind, base64.b64encode(blob).decode())

    def ed25519(self):
        # Only about half of all numbers belong to a point of the curve, and strict
        # programs refuse the others.
        p, d = self.ED25519_P, self.ED25519_D
        while True:
            y = self.rng.getrandbits(255) % p
            product = (y * y - 1) * (d * y * y + 1) % p
            if product and pow(product, (p - 1) // 2, p) == 1:
                sign = self.rng.getrandbits(1) << 255
                return self.text("ssh-ed25519", (y | sign).to_bytes(32, "little"))

    def ecdsa(self):
        p = self.P256_P
        while True:
            x = self.rng.getrandbits(256) % p
            square = (x * x * x - 3 * x + self.P256_B) % p
            y = pow(square, (p + 1) // 4, p)
            if y * y % p == square:
                point = b"\4" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
                return self.text("ecdsa-sha2-nistp256", b"nistp256", point)

    def rsa(self, bits):
        modulus = self.rng.getrandbits(bits) | 1 << (bits - 1) | 1
        return self.text("ssh-rsa", b"\1\0\1", b"\0" + modulus.to_bytes(bits // 8, "big"))


class Writer:
    """Makes accounts, and collects what `show` has to print for them."""

    def __init__(self, count, seed):
        self.rng = random.Random(seed)
        self.count = count
        self.config = ConfigWriter(self.rng)
        self.keys = KeyMaker(self.rng)
        self.stream = []       # input of `git fast-import`
        self.tips = {}         # ref -> mark of its last commit
        self.marks = 0
        self.blob_refs = []    # (ref, object) of refs that point to blobs
        self.notes = []        # (path, content)
        self.document = {"accounts": []}

    def write(self, directory):
        """Writes the repository and returns the document that describes it."""
        if os.path.isdir(directory) and os.listdir(directory):
            raise GitError("%s: the directory is not empty" % directory)
        for index in range(self.count):
            self.account(FIRST_ACCOUNT + index)
        self.external_ids()
        self.defaults()
        next_account = FIRST_ACCOUNT + self.count + self.rng.randint(0, 9)
        self.blob_ref(SEQUENCE, b"%d" % next_account)
        self.document["next_account"] = next_account
        done = subprocess.run(
            ["git", "init", "--quiet", "--bare", "--template=", "--initial-branch=main", directory],
            env=git_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise GitError(decode(done.stderr).strip())
        # The last reset leaves the branch of the import empty, so that it does not become a ref.
        stream = b"".join(self.stream) + b"reset %s\n\ndone\n" % self.SCRATCH
        marks = os.path.join(os.path.abspath(directory), "import-marks")
        Repository(directory).git("fast-import", "--quiet", "--done", "--date-format=raw",
                                  "--export-marks=" + marks, stdin=stream)
        with open(marks, encoding="ascii") as lines:
            commits = dict(line.split() for line in lines)
        os.remove(marks)
        refs = dict(self.blob_refs)
        refs.update((ref, commits[":%d" % mark]) for ref, mark in self.tips.items())
        # Thousands of loose refs take longer to write than all objects together. A file of
        # packed refs is one write; the order of its lines is the order of the bytes.
        with open(os.path.join(directory, "packed-refs"), "wb") as packed:
            packed.write(b"# pack-refs with: peeled fully-peeled sorted \n")
            for ref in sorted(refs):
                packed.write(b"%s %s\n" % (refs[ref].encode(), ref.encode()))
        return self.document

    # Objects

    SCRATCH = b"refs/heads/import"

    def data(self, content):
        self.stream.append(b"data %d\n%s\n" % (len(content), content))

    def commit(self, ref, author, time, message, files):
        """Adds a commit to a ref, all of whose commits have to follow each other.

        A file with the content None is removed.
        """
        zone = self.rng.choice(("+0000", "+0000", "+0000", "+0200", "-0730"))
        if ref not in self.tips:
            self.stream.append(b"reset %s\n\n" % self.SCRATCH)
        self.marks += 1
        self.tips[ref] = self.marks
        self.stream.append(b"commit %s\nmark :%d\n" % (self.SCRATCH, self.marks))
        self.stream.append("author {0} {1} +0100\ncommitter {2} {1} {3}\n".format(
            author, time, SERVER, zone).encode())
        self.data(message.encode())
        for path, content in files:
            if content is None:
                self.stream.append(b"D %s\n" % path.encode())
            else:
                self.stream.append(b"M 100644 inline %s\n" % path.encode())
                self.data(content)
        self.stream.append(b"\n")

    def blob_ref(self, ref, content):
        """Adds a blob and remembers the ref that names it."""
        self.stream.append(b"blob\n")
        self.data(content)
        oid = hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()
        self.blob_refs.append((ref, oid))

    # Accounts

    def account(self, number):
        """Adds one account with branch, external IDs and stars."""
        rng = self.rng
        ref = "refs/users/%s/%d" % (shard(number), number)
        time = EPOCH + (number - FIRST_ACCOUNT) * 3607 + rng.randint(0, 3000)
        account = {"_account_id": number, "registered_on": datetime.datetime.fromtimestamp(
            time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        # Some accounts consist of nothing but an empty tree; the third one always does,
        # so that small repositories have one too.
        empty = rng.random() < 0.05 or number == FIRST_ACCOUNT + 2
        slug = "%s.%s%d" % ("".join(rng.choice(string.ascii_lowercase) for _ in range(5)),
                            rng.choice(("dev", "ops", "x")), number % 100000)
        emails = self.links(account, number, slug, empty)
        author = "%s <%s>" % (slug, emails[0] if emails else "%d@example.com" % number)
        if empty:
            self.commit(ref, author, time, "Create Account on First Login\n", [])
        else:
            files = {"account.config": self.properties(account, emails),
                     "preferences.config": self.preferences(account),
                     "watch.config": self.watches(account),
                     "authorized_keys": self.ssh_keys(account)}
            if rng.random() < 0.1:
                files["README.txt"] = "Notes of %s: größer, \"besser\"\n".encode() % slug.encode()
                files["more/deep/file.bin"] = bytes(rng.getrandbits(8) for _ in range(40))
            self.history(ref, author, time, {p: c for p, c in files.items() if c is not None})
        if rng.random() < 0.4:
            self.stars(account)
        self.document["accounts"].append(account)

    def history(self, ref, author, time, files):
        """Spreads files over several commits, of which some change nothing."""
        rng = self.rng
        names = list(files)
        rng.shuffle(names)
        first = [(name, files.pop(name)) for name in names[:rng.randint(0, 2)]]
        self.commit(ref, author, time, "Create Account on First Login\n", first)
        if rng.random() < 0.3:
            self.commit(ref, author, time + 60, "Link External ID\n\nAn empty commit.\n", [])
        if rng.random() < 0.2:
            self.commit(ref, author, time + 120, "Add a draft\n", [("draft.txt", b"old\n")])
            files["draft.txt"] = None
        for step, (name, content) in enumerate(files.items()):
            self.commit(ref, author, time + 1000 + step, "Update %s\n" % name, [(name, content)])

    def properties(self, account, emails):
        """Returns `account.config`, or None if the account has no properties."""
        rng = self.rng
        pairs = []
        if rng.random() < 0.9:
            account["name"] = rng.choice(NAME_FORMS).format(
                f=rng.choice(FIRST_NAMES), l=rng.choice(LAST_NAMES), n=rng.choice(NICKNAMES))
            if rng.random() < 0.1:
                pairs.append(("fullName", "Old Name"))
            pairs.append(("fullName", account["name"]))
        elif rng.random() < 0.3:
            pairs.append(("fullName", ""))
        if emails and rng.random() < 0.8:
            account["email"] = rng.choice(emails)
            pairs.append(("preferredEmail", account["email"]))
        if rng.random() < 0.25:
            account["status"] = rng.choice(STATUSES)
            pairs.append(("status", account["status"]))
        if rng.random() < 0.1:
            account["inactive"] = True
            pairs.append(("active", rng.choice(("false", "false", "False", "no", "off"))))
        elif rng.random() < 0.1:
            pairs.append(("active", rng.choice(("true", "yes", None))))
        if rng.random() < 0.15:
            pairs.append(("x-note", rng.choice(("tab\there", "two\nlines", " edge ", "a\bb"))))
        if not pairs:
            return None
        sections = [("account", None, pairs)]
        if rng.random() < 0.1:
            cut = rng.randint(0, len(pairs))
            sections = [("account", None, pairs[:cut]), ("account", None, pairs[cut:])]
        if rng.random() < 0.1:
            sections.insert(rng.randint(0, len(sections)),
                            ("plugin", 'My "Plugin"', [("colour", "#ff0000"), ("enabled", None)]))
        return self.config.render(sections)

    def preferences(self, account):
        """Returns `preferences.config`, or None if everything is as by default."""
        rng = self.rng
        if rng.random() < 0.5:
            return None
        result, sections = {}, []
        for section, names in PREFERENCES.items():
            pairs = []
            for name in names:
                defaults = (CHOICES[name][0], DEFAULT_PREFERENCES[section].get(name))
                choices = [c for c in CHOICES[name] if c not in defaults]
                if not choices:
                    # A person can still choose what the defaults of the site changed.
                    choices = [CHOICES[name][0]]
                if rng.random() < 0.3:
                    value = rng.choice(choices)
                    if value == "true" and rng.random() < 0.2:
                        pairs.append((name, None))
                    else:
                        pairs.append((name, value))
                    result.setdefault(section, {})[name] = value
            if rng.random() < 0.1:
                pairs.append(("myWidget", "left # right"))
                result.setdefault(section, {})["mywidget"] = "left # right"
            if pairs:
                rng.shuffle(pairs)
                sections.append((section, None, pairs))
        if not sections:
            return None
        rng.shuffle(sections)
        account["preferences"] = result
        return self.config.render(sections)

    def watches(self, account):
        """Returns `watch.config`, or None if the account watches nothing."""
        rng = self.rng
        if rng.random() < 0.5:
            return None
        projects = rng.sample(PROJECTS, rng.randint(1, 4))
        if rng.random() < 0.03:
            projects.append(ODD_PROJECT)
        sections, watches = [], []
        for project in projects:
            notify, pairs = [], []
            for filter_text in rng.sample(("*", "*", "*") + WATCH_FILTERS, rng.randint(1, 4)):
                if any(known["filter"] == filter_text for known in notify):
                    continue
                types = rng.sample(sorted(NOTIFY_TYPES), rng.choice((0, 1, 1, 2, 2, 3)))
                notify.append({"filter": filter_text, "types": types})
                listed = rng.choice((", ", ", ", ",", " , ")).join(types)
                form = rng.choice(("%s [%s]", "%s [%s]", "%s  [ %s ]"))
                left = "" if filter_text == "*" and rng.random() < 0.2 else filter_text
                pairs.append(("notify", (form % (left, listed)).strip()))
            if rng.random() < 0.1:
                pairs.append(("colour", "red"))
            if len(pairs) > 1 and rng.random() < 0.1:
                sections.append(("project", project, pairs[:1]))
                pairs = pairs[1:]
            sections.append(("project", project, pairs))
            watches.append({"project": project, "notify": notify})
        account["watches"] = watches
        return self.config.render(sections)

    def ssh_keys(self, account):
        """Returns `authorized_keys`, or None if there never was a key."""
        rng = self.rng
        if rng.random() < 0.4:
            return None
        lines, keys = [], []
        number = 0
        for _ in range(rng.randint(1, 4)):
            kind = rng.random()
            if kind < 0.15:
                number += 1
                lines.append("# DELETED")
                continue
            if kind < 0.25:
                lines.append(rng.choice(("# my laptop", "", "#DELETED is only a comment", "#")))
            number += 1
            comment = rng.choice(("", " john@laptop", " Jörgs Rechner (alt)", " a # b"))
            if kind > 0.88:
                text = rng.choice((
                    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB!broken", "not a key at all",
                    self.keys.rsa(1024), "ssh-dss AAAAB3NzaC1kc3MAAACBAP1/U4Ed")) + comment
                lines.append("# INVALID " + text)
                keys.append({"seq": number, "key": text, "valid": False})
                continue
            text = self.keys.ed25519() if kind < 0.7 else \
                self.keys.ecdsa() if kind < 0.8 else self.keys.rsa(2048)
            options = rng.random()
            if options < 0.05:
                text = 'from="10.0.0.0/8,!10.0.0.1,192.168.*" ' + text
            elif options < 0.1:
                text = 'expiry-time="20991231",from="192.0.2.7" ' + text
            lines.append(("  " if rng.random() < 0.05 else "") + text + comment)
            keys.append({"seq": number, "key": text + comment, "valid": True})
        if keys:
            account["ssh_keys"] = keys
        newline = "\r\n" if rng.random() < 0.05 else "\n"
        return (newline.join(lines) + ("" if rng.random() < 0.05 else newline)).encode("utf-8")

    def links(self, account, number, slug, empty):
        """Adds the external IDs of an account and returns its addresses."""
        rng = self.rng
        if empty and rng.random() < 0.5:
            return []
        address = rng.choice(("%s@example.com", "%s@Example.ORG", "%s+git@mail.example.net",
                              "%s@localhost")) % slug
        if rng.random() < 0.1:
            address = address.capitalize()
        emails = []
        found = []

        def link(key, email=None, password=None):
            pairs = [("accountId", str(number))]
            if email:
                # The same address may be on several external IDs, in any case.
                written = email.upper() if rng.random() < 0.05 else email
                emails.append(written)
                pairs.append(("email", written))
            if password:
                pairs.append(("password", password))
            if rng.random() < 0.05:
                pairs.append(("linkedBy", "the \"server\""))
            if rng.random() < 0.2:
                rng.shuffle(pairs)
            name = note_name(key)
            # All three fan-outs are mixed, as no writer would do it but a reader must know.
            path = rng.choice((name, name[:2] + "/" + name[2:],
                               name[:2] + "/" + name[2:4] + "/" + name[4:]))
            self.notes.append((path, self.config.render([("externalId", key, pairs)])))
            shown_id = {"key": key}
            if email:
                shown_id["email"] = written
            if password:
                shown_id["has_password"] = True
            found.append(shown_id)

        if rng.random() < 0.9:
            password = None
            if rng.random() < 0.5:
                password = "bcrypt:4:%s:%s" % tuple(
                    base64.b64encode(rng.getrandbits(8 * size).to_bytes(size, "big")).decode()
                    for size in (16, 24))
            link("username:" + slug, address if rng.random() < 0.4 else None, password)
            account["username"] = slug
        if rng.random() < 0.6:
            link("mailto:" + address, address)
        if rng.random() < 0.15:
            second = "%s@second.example" % slug
            link("mailto:" + second, second)
        if rng.random() < 0.5:
            host = "ghe.acme.com/" if rng.random() < 0.2 else ""
            link("github:%s%d" % (host, 500000 + number),
                 address if rng.random() < 0.5 else None)
        if rng.random() < 0.2:
            link("gitlab:%d" % (number - FIRST_ACCOUNT + 1))
        if rng.random() < 0.3:
            link("oidc:https://id.example.com/realms/a#%08x-%d" % (rng.getrandbits(32), number),
                 address if rng.random() < 0.7 else None)
        if rng.random() < 0.1:
            link("corp:CN=%s \"%d\"\\, OU=Größe" % (slug, number))
        if number == FIRST_ACCOUNT:
            # A known pair of key and note name, by which other tools can be tried.
            link("gerrit:jdoe")
        if found:
            account["external_ids"] = sorted(found, key=lambda e: e["key"])
        return emails

    def stars(self, account):
        """Adds the stars of an account."""
        rng = self.rng
        number = account["_account_id"]
        stars = []
        for change in sorted(rng.sample(range(1, 4 * self.count + 20), rng.randint(1, 6))):
            labels = {rng.choice(("star", "star", "ignore"))} if rng.random() < 0.9 else set()
            labels.update(rng.sample(LABELS[2:], rng.randint(0 if labels else 1, 3)))
            labels = sorted(labels)
            stars.append({"change": change, "labels": labels})
            self.blob_ref("refs/starred-changes/%s/%d/%d" % (shard(change), change, number),
                          ("\n".join(labels) + rng.choice(("", "\n"))).encode("utf-8"))
        account["starred_changes"] = stars

    # Common branches

    def external_ids(self):
        """Writes the notes in two commits, so that the branch has a history."""
        half = len(self.notes) // 2
        for step, notes in enumerate((self.notes[:half], self.notes[half:])):
            self.commit(EXTERNAL_IDS, SERVER, EPOCH + step, "Update external IDs\n", notes)

    def defaults(self):
        """Writes the preferences that hold for everybody."""
        sections = [(section, None, list(values.items()))
                    for section, values in DEFAULT_PREFERENCES.items()]
        self.commit(DEFAULTS, SERVER, EPOCH, "Set default preferences\n",
                    [("preferences.config", self.config.render(sections))])
        self.document["default_preferences"] = DEFAULT_PREFERENCES


# ---------------------------------------------------------------------------
# Command line
# ---------------------------------------------------------------------------


def to_json(document):
    """Returns a document in the form that `show` prints."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, indent=1) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser(description="Reads, checks and writes All-Users.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("show", "print all accounts as JSON"),
                       ("check", "print one line for each problem")):
        commands.add_parser(name, help=text).add_argument("directory")
    write = commands.add_parser("write", help="create a bare repository with accounts")
    write.add_argument("directory")
    write.add_argument("count", type=int)
    write.add_argument("seed", type=int)
    options = parser.parse_args(arguments)
    out = sys.stdout.buffer
    try:
        if options.command == "write":
            Writer(options.count, options.seed).write(options.directory)
            return 0
        reader = Reader(Repository(options.directory))
        document = reader.read()
    except GitError as error:
        print("all_users.py: %s" % error, file=sys.stderr)
        return 2
    problems = sorted(reader.problems)
    if options.command == "show":
        out.write(to_json(document).encode("utf-8", "replace"))
        return 0
    out.write("".join(line + "\n" for line in problems).encode("utf-8", "replace"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
