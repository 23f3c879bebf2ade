#!/usr/bin/env python3
"""Tests `all_users.py` against `git` and against repositories of known content.

    self_test.py            runs all tests, in less than 20 seconds
"""

import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import all_users  # noqa: E402

SEED = 20240229
CONFIG_FILES = 500


def git(*arguments, stdin=b""):
    """Runs `git` and returns its standard output, or None if it fails."""
    done = subprocess.run(["git", *arguments], input=stdin, env=all_users.git_environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return None if done.returncode else done.stdout


def listed_by_git(path):
    """Returns the keys and values that `git config` finds in a file."""
    output = git("config", "--list", "-z", "-f", path)
    if output is None:
        return None
    pairs = []
    for item in output.split(b"\0")[:-1]:
        name, newline, value = item.partition(b"\n")
        pairs.append((name, value if newline else None))
    return pairs


def listed_by_us(data):
    """Returns the same of the parser that is under test."""
    try:
        entries, _ = all_users.parse_config(data)
    except all_users.ConfigError:
        return None
    return [(".".join(part for part in (
        entry.section if entry.section or entry.subsection is not None else None,
        entry.subsection, entry.key) if part is not None).encode("utf-8"), entry.value)
        for entry in entries]


def git_keeps_inner_tabs():
    """Tells if this Git keeps a tab inside a value, as it does since version 2.45."""
    numbers = git("version").split()[2].split(b".")
    return (int(numbers[0]), int(numbers[1])) >= (2, 45)


class ConfigFiles:
    """Makes valid, odd and broken config files."""

    PIECES = (
        "[", "]", "[a]", '[A "b"]', '[a "B\\"c\\\\"]', "[a.B]", '[a.b "C.d"]', "[a", '[a  "x"]',
        '["x"]', '[ "x"]', "[]", '[a"x"]', '[a ""]', '[a "\\x"]', '[a "x" ]', "[a b]", "[.a]",
        "key", "Key", "k-1", "-k", "1k", "k_x", "ö", "=", " = ", "=\t", "\t", " ", "  ", "\n",
        "\n\n", "\r\n", "\r", "#", ";", "# x\n", "; y \\\n", '"', '""', '" "', "\\", "\\n", "\\t",
        "\\b", "\\\\", '\\"', "\\x", "\\\n", "\\\r\n", "value", "two words", "a  b", "ä ö",
        "key = value\n", "key=\n", "key\n", 'k = "a # b" c # d\n', "include\n", "k = \\\n  v\n",
        "[include]\npath = other\n", "notify = * [ALL]\n", "k = a\\\n", "\ufeff", ".")

    def __init__(self):
        self.rng = random.Random(SEED)
        self.writer = all_users.ConfigWriter(self.rng)
        self.tabs = "\t" if not git_keeps_inner_tabs() else ""

    def next(self):
        kind = self.rng.random()
        if kind < 0.3:
            return self.well_formed()
        if kind < 0.55:
            # One change somewhere in a good file finds more than noise does.
            data = bytearray(self.well_formed())
            for _ in range(self.rng.randint(1, 2)):
                place = self.rng.randint(0, len(data))
                piece = self.rng.choice(self.PIECES).encode("utf-8")
                data[place:place + self.rng.choice((0, 0, 1, 3))] = piece
            return self.without_inner_tabs(bytes(data))
        if kind < 0.8:
            lines = ["[s]\n"] + ["k%s%s" % (self.rng.choice((" = ", "=", "", " =\t")),
                                            self.value()) for _ in range(4)]
            return self.without_inner_tabs("".join(lines).encode("utf-8"))
        return self.without_inner_tabs("".join(
            self.rng.choice(self.PIECES) for _ in range(self.rng.randint(1, 14))).encode("utf-8"))

    def without_inner_tabs(self, data):
        """Replaces tabs and carriage returns where versions of Git differ about them."""
        return data if self.tabs else data.replace(b"\t", b" ").replace(b"\r", b"")

    def value(self):
        return "".join(self.rng.choice((
            "a", "b", " ", "  ", "\t", '"', '"', "\\\\", '\\"', "\\n", "\\t", "\\\n", "ü", "=", "[",
            "]", "#", ";", "\r", "a")) for _ in range(self.rng.randint(0, 7))) + \
            self.rng.choice(("\n", "\n", "\r\n", ""))

    def well_formed(self):
        alphabet = 'ab ü"\\#;=[]\n\t\b'
        sections = []
        for _ in range(self.rng.randint(0, 4)):
            subsection = None
            if self.rng.random() < 0.5:
                subsection = "".join(self.rng.choice('aB."\\ #;]ü') for _ in range(4))
            pairs = [(self.rng.choice(("key", "otherKey", "x-1")), None if self.rng.random() < 0.1
                      else "".join(self.rng.choice(alphabet) for _ in range(
                          self.rng.randint(0, 9)))) for _ in range(self.rng.randint(0, 4))]
            sections.append((self.rng.choice(("account", "Project", "x.y")), subsection, pairs))
        return self.writer.render(sections)


class ConfigTest(unittest.TestCase):
    def test_parser_agrees_with_git(self):
        files = ConfigFiles()
        accepted = refused = 0
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            for _ in range(CONFIG_FILES):
                data = files.next()
                with open(path, "wb") as file:
                    file.write(data)
                expected = listed_by_git(path)
                self.assertEqual(listed_by_us(data), expected, data)
                accepted += expected is not None
                refused += expected is None
        # Both outcomes have to be frequent, or the comparison says little.
        self.assertGreater(accepted, CONFIG_FILES // 4)
        self.assertGreater(refused, CONFIG_FILES // 10)

    def test_what_is_written_is_read_again(self):
        rng = random.Random(SEED)
        writer = all_users.ConfigWriter(rng)
        for _ in range(3000):
            value = "".join(rng.choice('ab "\\#;=\n\t\bü') for _ in range(rng.randint(0, 9)))
            name = "".join(rng.choice('aB "\\].') for _ in range(rng.randint(1, 5)))
            data = writer.render([("section", name, [("someKey", value)])])
            entries, _ = all_users.parse_config(data)
            self.assertEqual([(e.section, e.subsection, e.key, e.text()) for e in entries],
                             [("section", name, "somekey", value)], data)

    def test_lines_are_those_of_the_keys(self):
        entries, headers = all_users.parse_config(
            b'# x\n[a]\n\n k = 1\n l = 2 \\\n  3\n m\n[b "c"] n = 4\n')
        self.assertEqual([(e.key, e.line) for e in entries],
                         [("k", 4), ("l", 5), ("m", 7), ("n", 8)])
        self.assertEqual([line for _, _, line in headers], [2, 8])


class RuleTest(unittest.TestCase):
    def test_note_names(self):
        self.assertEqual(all_users.note_name("gerrit:jdoe"),
                         "7c2a55657d911109dbc930836e7a770fb946e8ef")
        self.assertEqual(all_users.note_name("username:jdoe"),
                         "e0b751ae90ef039f320e097d7d212f490e933706")

    def test_password_of_the_documentation(self):
        good = "bcrypt:4:LCbmSBDivK/hhGVQMfkDpA==:XcWn0pKYSVU/UJgOvhidkEtmqCp6oKB7"
        self.assertIsNone(all_users.password_problem(good))
        self.assertIsNone(all_users.password_problem(good.replace("bcrypt", "bcrypt0")))
        for bad in ("", "x", good[:-1], good + ":", good.replace("4", "3"),
                    good.replace("bcrypt", "md5"), good.replace("==", ""),
                    good.replace(":4:", ":+4:"), good.replace("XcWn", "Xc\nWn")):
            self.assertIsNotNone(all_users.password_problem(bad), bad)

    def test_emails(self):
        for good in ("j@x", "j.doe+a@Example.org", "ü@ö", "a" * 252 + "@x"):
            self.assertIsNone(all_users.email_problem(good), good)
        for bad in ("", "j", "j@", "@x", "a@b@c", "a b@x", "a@x\n", "a\x7f@x", "a\u00a0b@x",
                    "a" * 253 + "@x"):
            self.assertIsNotNone(all_users.email_problem(bad), bad)

    def test_notify_values(self):
        parse = all_users.parse_notify
        self.assertEqual(parse("* [ALL_COMMENTS]"), ("*", ["ALL_COMMENTS"], None))
        self.assertEqual(parse("[]"), ("*", [], None))
        self.assertEqual(parse("branch:v[12] [ALL,LOCKS]"), ("branch:v[12]", ["ALL", "LOCKS"], None))
        for good in ('dir:"a b" OR -(is:draft owner:self) [ALL]', "(branch:a) [ ]",
                     "-label:x [PLANS , DRIFT]"):
            self.assertIsNone(parse(good)[2], good)
        for bad in ("", "*", "* ALL", "* [ALL", "* [all]", "* [ALL,]", "* [ALL] x", "branch: [ALL]",
                    "branch:v[12]", "file:x [ALL]", "word [ALL]", "owner:jdoe [ALL]",
                    "is:open [ALL]", "(branch:a [ALL]", "branch:a) [ALL]", "OR branch:a [ALL]",
                    "branch:a OR [ALL]", "- [ALL]", '() [ALL]', 'dir:"x [ALL]'):
            self.assertIsNotNone(parse(bad)[2], bad)

    def test_key_lines(self):
        keys = all_users.KeyMaker(random.Random(SEED))
        good = keys.ed25519()
        for line in (good, good + " comment with words", 'from="a,b" ' + good,
                     'expiry-time="20300101",FROM="x y" ' + good, keys.ecdsa(), keys.rsa(2048)):
            self.assertIsNone(all_users.key_problem(line), line)
        for line in ("x", "ssh-ed25519", "ssh-ed25519 AAAA", good[:-4], good[:-4] + "!!!!",
                     good.replace("ssh-ed25519", "ssh-rsa"), 'command="x" ' + good,
                     "no-pty " + good, "no-pty,from=\"x\" " + good, 'from="x"', "from " + good,
                     'expiry-time="soon" ' + good, keys.rsa(1024), 'from="x" hello',
                     keys.text("ssh-ed25519", b"x" * 31), keys.text("ssh-dss", b"x")):
            self.assertIsNotNone(all_users.key_problem(line), line)


class WriterTest(unittest.TestCase):
    def test_show_prints_what_write_meant(self):
        for count, seed in ((0, 1), (1, 2), (400, 3), (400, 4)):
            with self.subTest(count=count, seed=seed), tempfile.TemporaryDirectory() as folder:
                expected = all_users.Writer(count, seed).write(folder)
                reader = all_users.Reader(all_users.Repository(folder))
                self.assertEqual(all_users.to_json(reader.read()), all_users.to_json(expected))
                self.assertEqual(reader.problems, [])
                self.assertIsNotNone(git("-C", folder, "fsck", "--strict", "--no-dangling"))
                if count == 400:
                    self.assertEqual(fan_outs(folder), {0, 1, 2})

    def test_same_seed_same_refs(self):
        listings = []
        for seed in (5, 5, 6):
            with tempfile.TemporaryDirectory() as folder:
                all_users.Writer(30, seed).write(folder)
                listings.append(git("-C", folder, "for-each-ref"))
        self.assertEqual(listings[0], listings[1])
        self.assertNotEqual(listings[0], listings[2])

    def test_notes_are_those_git_finds(self):
        with tempfile.TemporaryDirectory() as folder:
            all_users.Writer(50, 7).write(folder)
            names = git("-C", folder, "ls-tree", "-r", "--name-only", all_users.EXTERNAL_IDS)
            git("-C", folder, "update-ref", "refs/notes/copy", all_users.EXTERNAL_IDS)
            found = git("-C", folder, "notes", "--ref=copy", "list").decode().split()[1::2]
            self.assertEqual(sorted(found),
                             sorted(names.decode().replace("/", "").split()))


def fan_outs(folder):
    names = git("-C", folder, "ls-tree", "-r", "--name-only", all_users.EXTERNAL_IDS)
    return {name.count("/") for name in names.decode().split()}


class Repo:
    """A small repository that is made by hand."""

    def __init__(self, folder):
        self.folder = folder
        git("init", "--quiet", "--bare", folder)
        self.stream = []
        self.blobs = []

    def commit(self, ref, files=(), merge=None, mode="100644"):
        self.stream.append("commit %s\ncommitter A <a@x> 1700000000 +0000\ndata 0\n" % ref)
        if merge:
            self.stream.append("merge %s\n" % merge)
        for path, text in dict(files).items():
            text = text if isinstance(text, bytes) else text.encode("utf-8")
            self.stream.append("M %s inline %s\ndata %d\n" % (mode, path, len(text)))
            self.stream.append(text)
            self.stream.append("\n")

    def user(self, number, files=(), **more):
        self.commit("refs/users/%s/%d" % (all_users.shard(number), number), files, **more)

    def notes(self, *texts, **paths):
        """Writes notes, each under the name of its first key, and others by their path."""
        files = {}
        for text in texts:
            name = all_users.note_name(text.split('"')[1])
            files[name[:2] + "/" + name[2:]] = text
        files.update(paths)
        self.commit(all_users.EXTERNAL_IDS, files)

    def blob(self, ref, text):
        self.blobs.append((ref, text if isinstance(text, bytes) else text.encode("utf-8")))

    def problems(self):
        stream = b"".join(part if isinstance(part, bytes) else part.encode("utf-8")
                          for part in self.stream)
        assert git("-C", self.folder, "fast-import", "--quiet", stdin=stream) is not None
        for ref, content in self.blobs:
            oid = git("-C", self.folder, "hash-object", "-w", "--stdin", stdin=content)
            git("-C", self.folder, "update-ref", ref, oid.decode().strip())
        reader = all_users.Reader(all_users.Repository(self.folder))
        reader.read()
        return sorted(reader.problems)


def note(key, account, more=""):
    return '[externalId "%s"]\n\taccountId = %s\n%s' % (key, account, more)


class CheckTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repo = Repo(folder.name)

    def check(self, *expected):
        """Compares the problems; `…` at the end of an expected line stands for any rest."""
        found = self.repo.problems()
        expected = sorted(expected)
        shortened = []
        for index, line in enumerate(found):
            wanted = expected[index] if index < len(expected) else ""
            if wanted.endswith("…") and line.startswith(wanted[:-1]):
                line = wanted
            shortened.append(line)
        self.assertEqual(shortened, expected)

    def test_user_branches(self):
        key = all_users.KeyMaker(random.Random(SEED)).ed25519()
        user = self.repo.user
        user(1000001, {"account.config": "[account]\n\nactive = perhaps\n",
                       "preferences.config": "[diff]\ncontext = 1k\nshowTabs = 2x\nTABSIZE\n"})
        user(1000002, {"account.config": "[account\n", "preferences.config": "[a]\nx = \"\n",
                       "watch.config": "[p]\nk = \\x\n", "authorized_keys": b"\xff\n"})
        user(1000003, {"account.config": "[account]\npreferredEmail = k@x\n"})
        user(1000004, {"account.config": "[account]\npreferredEmail = k\n"})
        user(1000005, {"account.config": "[account]\npreferredEmail = K@x\n"})
        user(1000006, {"watch.config": '[project "p"]\n notify = * [ALL]\n notify = label:#1 [ALL]\n'
                       " notify = * [NONE]\n notify\n[project]\nnotify = * [ALL]\n"})
        user(1000007, {"authorized_keys": "%s a\n# DELETED\n\n# x\nrubbish\n# INVALID y\n"
                       'command="x" %s\n' % (key, key)})
        user(1000008, {"a": "x"})
        user(1000008, {"b": "x"}, merge="refs/users/01/1000001")
        user(1000009, {"account.config": "target"}, mode="120000")
        user(1000010, {"account.config": "[account]\nfullName = J\u00f6rg\0\n"})
        user(1000011, {"account.config": b"[account]\nfullName = J\xf6rg\n"})
        user(1000012, {"watch.config": "#" * 65537})
        user(1000013, {"account.config/x": "a directory"})
        user(1000014, {"f%d" % n: "x" for n in range(101)})
        self.repo.notes(note("mailto:k@x", 1000005, "email = k@x\n"))
        self.check(
            "refs/users/01/1000001:account.config:3: `active` is not a boolean: `perhaps`",
            "refs/users/01/1000001:preferences.config:2: diff.context is not an integer: `1k`",
            "refs/users/01/1000001:preferences.config:3: diff.showTabs is not a boolean: `2x`",
            "refs/users/01/1000001:preferences.config:4: diff.tabSize is not an integer: `true`",
            "refs/users/02/1000002:account.config:1: malformed section header",
            "refs/users/02/1000002:authorized_keys: is not UTF-8",
            "refs/users/02/1000002:authorized_keys:1: not an SSH key",
            "refs/users/02/1000002:preferences.config:2: quote without an end",
            "refs/users/02/1000002:watch.config:2: unknown escape `\\x`",
            "refs/users/03/1000003:account.config:2: the preferredEmail `k@x` is on no external "
            "ID of the account",
            "refs/users/04/1000004:account.config:2: invalid preferredEmail `k`: …",
            "refs/users/06/1000006:watch.config:3: no `[types]` at the end of the notify value: "
            "`label:`",
            "refs/users/06/1000006:watch.config:4: unknown notify type `NONE`: `* [NONE]`",
            "refs/users/06/1000006:watch.config:5: no `[types]` at the end of the notify value: "
            "`true`",
            "refs/users/06/1000006:watch.config:7: a watch without the name of a project",
            "refs/users/07/1000007:authorized_keys:5: not an SSH key",
            "refs/users/07/1000007:authorized_keys:7: option `command` is not allowed",
            "refs/users/08/1000008: the commit …",
            "refs/users/09/1000009:account.config: is not a file",
            "refs/users/10/1000010:account.config:2: NUL byte",
            "refs/users/11/1000011:account.config: is not UTF-8",
            "refs/users/12/1000012:watch.config: more than 65536 bytes",
            "refs/users/13/1000013:account.config: is not a file",
            "refs/users/14/1000014: more than 100 files")

    def test_external_ids(self):
        repo = self.repo
        for number in (1000001, 1000002):
            repo.user(number)
        wrong = "0" * 40
        twice = all_users.note_name("twice:1")
        paths = {
            "README": "x",
            "zz/x": "x",
            wrong: note("wrong:1", 1000001),
            "11/" + "1" * 38: '[externalId "two:1"]\naccountId = 1000001\n[externalId "two:2"]\n',
            "11/" + "2" * 38: "# empty\n",
            "11/" + "3" * 38: "[externalId]\naccountId = 1000001\n",
            "11/" + "4" * 38: "[externalId\n",
            twice: note("twice:1", 1000001),
            twice[:2] + "/" + twice[2:]: note("twice:1", 1000002),
        }
        repo.notes(
            note("nothing:1", ""), note("unit:1", "1k"), note("gone:1", 1000003),
            '[externalId "none:1"]\n[externalId "none:1"]\nx = y\n',
            note("mailto:bad", 1000001, "email = bad\n"),
            note("a:1", 1000001, "email = Same@x\n"), note("b:1", 1000001, "email = same@x\n"),
            note("c:1", 1000002, "email = SAME@X\n"),
            note("username:JDoe", 1000001), note("nocolon", 1000001), note(":x", 1000001),
            note("username:a", 1000001, "password = bcrypt:4:x:y\n"),
            note("corp:a", 1000001, "password = anything\n"), **paths)

        def at(key, line=None):
            name = all_users.note_name(key)
            path = "%s:%s/%s" % (all_users.EXTERNAL_IDS, name[:2], name[2:])
            return path if line is None else "%s:%d" % (path, line)

        notes = all_users.EXTERNAL_IDS
        self.check(
            notes + ":README: not a note",
            notes + ":zz: not a note",
            notes + ":%s:1: the name of the note is not the SHA-1 of `wrong:1`, which is %s"
            % (wrong, all_users.note_name("wrong:1")),
            notes + ":11/%s: needs exactly one section…" % ("1" * 38),
            notes + ":11/%s:1: the name of the note is not the SHA-1 of `two:1`…" % ("1" * 38),
            notes + ":11/%s: needs exactly one section…" % ("2" * 38),
            notes + ":11/%s: needs exactly one section…" % ("3" * 38),
            notes + ":11/%s:1: malformed section header" % ("4" * 38),
            notes + ": the note %s is there 2 times: %s" % (
                twice, ", ".join(sorted((twice, twice[:2] + "/" + twice[2:])))),
            at("nothing:1", 2) + ": the accountId `` is not a number",
            at("unit:1", 2) + ": the accountId `1k` is not a number",
            at("gone:1", 2) + ": the account 1000003 does not exist",
            at("none:1", 1) + ": no accountId",
            at("mailto:bad", 3) + ": invalid e-mail `bad`: it needs exactly one `@` between two parts",
            notes + ": account 1000001 has more than one user name: username:JDoe, username:a",
            notes + ": the e-mail `same@x` is on more than one account: a:1 (account 1000001), "
            "b:1 (account 1000001), c:1 (account 1000002)",
            at("username:JDoe", 1) + ": the user name `JDoe` is not lower case",
            at("nocolon", 1) + ": the key `nocolon` is not <scheme>:<id>",
            at(":x", 1) + ": the key `:x` is not <scheme>:<id>",
            at("username:a", 3) + ": the password cannot be decoded: it has a salt that is not "
            "base64 of 16 bytes")

    def test_refs_stars_and_sequence(self):
        repo = self.repo
        repo.user(1000001)
        for ref in ("refs/users/02/1000001", "refs/users/1/1", "refs/users/x", "refs/heads/main",
                    "refs/starred-changes/17/17/1000001"):
            repo.commit(ref)
        repo.commit("refs/users/self", {"other": "commit"})
        repo.blob("refs/users/03/1000003", "x")
        repo.blob("refs/sequences/accounts", "1000001\n")
        star = "refs/starred-changes/"
        repo.blob(star + "01/1/1000001", "blue\nstar")
        repo.blob(star + "02/2/1000001", "star\nblue\n")
        repo.blob(star + "03/3/1000001", "blue\nblue\n")
        repo.blob(star + "04/4/1000001", "my label\n")
        repo.blob(star + "05/5/1000009", "star\n")
        repo.blob(star + "06/6/1000001", "")
        repo.blob(star + "07/8/1000001", "star")
        repo.blob(star + "08/8", "star")
        repo.blob(star + "09/9/1000001", "ignore\nstar\n")
        repo.blob(star + "10/10/1000001", "a\n\nb\n")
        git("-C", repo.folder, "symbolic-ref", "refs/users/00/100", "refs/users/01/1000001")
        self.check(
            "refs/users/00/100: is only another name of refs/users/01/1000001",
            "refs/users/02/1000001: not a user branch: account 1000001 belongs in refs/users/01/",
            "refs/users/self: stands for the branch of the caller, and none is there",
            "refs/users/1/1: not a user branch: account 1 belongs in refs/users/01/",
            "refs/users/x: not a user branch",
            "refs/heads/main: unknown ref",
            "refs/users/03/1000003: points to a blob object, not to a commit",
            "refs/sequences/accounts: 1000001 is not above the highest account 1000001",
            star + "17/17/1000001: points to a commit object, not to a blob",
            star + "02/2/1000001: the labels are not sorted, or one is there twice",
            star + "03/3/1000001: the labels are not sorted, or one is there twice",
            star + "04/4/1000001: the label `my label` is empty or contains a blank",
            star + "05/5/1000009: the account 1000009 does not exist",
            star + "06/6/1000001: has no labels",
            star + "07/8/1000001: not a star: change 8 belongs in refs/starred-changes/08/",
            star + "08/8: not a star",
            star + "09/9/1000001: `star` and `ignore` exclude each other",
            star + "10/10/1000001: the label `` is empty or contains a blank",
            star + "10/10/1000001: the labels are not sorted, or one is there twice")

    def test_the_branch_of_the_caller(self):
        self.repo.user(1000001)
        self.repo.stream.append("reset refs/users/self\nfrom refs/users/01/1000001\n\n")
        self.check()

    def test_sequence_that_is_no_number(self):
        self.repo.user(1000001)
        self.repo.blob("refs/sequences/accounts", "+1000002")
        self.check("refs/sequences/accounts: not a number: `+1000002`")

    def test_defaults_and_configuration(self):
        repo = self.repo
        repo.user(1000001)
        repo.commit(all_users.DEFAULTS, {"preferences.config": "[edit]\ntabSize = wide\n"})
        repo.commit(all_users.CONFIG, {
            "project.config": "[access\n", "rights.config": "[server]\nread = group A\n",
            "groups.config": '[group "A"]\nmember = 1000001\ninclude = group B\n'
                             '[group "B"]\ninclude = group A\nmember = 5\ninclude = group C\n'})
        self.check(
            "refs/users/default:preferences.config:2: edit.tabSize is not an integer: `wide`",
            "refs/meta/config:project.config:1: malformed section header",
            "refs/meta/config:groups.config: the group `A` includes itself",
            "refs/meta/config:groups.config: the group `B` includes itself",
            "refs/meta/config:groups.config:6: the member `5` is not an account",
            "refs/meta/config:groups.config:7: the group `C` does not exist")

    def test_rules_name_groups_and_capabilities(self):
        repo = self.repo
        repo.user(1000001)
        repo.commit(all_users.CONFIG, {
            "groups.config": '[group "A"]\nmember = 1000001\n',
            "project.config": '[access "refs/users/*"]\nread = group A\npush = deny group B\n'
                              'read = everybody\nlabel-Code-Review = -2..+2 group B\n'
                              '[capability]\naccessDatabase = group Administrators\n'
                              'modifyaccounts = group A\nmodifyAccount = group C\n'})
        self.check(
            "refs/meta/config:project.config:3: `deny group B` names no group",
            "refs/meta/config:project.config:4: `everybody` names no group",
            "refs/meta/config:project.config:8: unknown capability `modifyaccounts`",
            "refs/meta/config:project.config:9: `group C` names no group")

    def test_registration_is_the_first_commit(self):
        self.repo.stream.append(
            "commit refs/users/56/1000856\n"
            "author A <a@x> 1000000000 +0000\ncommitter A <a@x> 1767323045 +0100\ndata 0\n"
            "commit refs/users/56/1000856\ncommitter A <a@x> 1800000000 +0000\ndata 0\n")
        self.check()
        document = all_users.Reader(all_users.Repository(self.repo.folder)).read()
        self.assertEqual(document, {
            "accounts": [{"_account_id": 1000856, "registered_on": "2026-01-02T03:04:05Z"}],
            "default_preferences": {}, "next_account": None})

    def test_missing_objects_are_named(self):
        self.repo.user(1000001, {"account.config": "[account]\nfullName = J\n"})
        self.repo.problems()
        blob = git("-C", self.repo.folder, "rev-parse",
                   "refs/users/01/1000001:account.config").decode().strip()
        os.remove(os.path.join(self.repo.folder, "objects", blob[:2], blob[2:]))
        self.repo.stream = []
        self.check("refs/users/01/1000001:account.config: missing object")

    def test_work_copies_have_refs_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            self.repo.user(1000001, {"account.config": "[account]\nfullName = J\n"})
            self.check()
            git("clone", "--quiet", self.repo.folder, folder)
            git("-C", folder, "fetch", "--quiet", "origin", "refs/users/01/1000001:refs/users/01/1000001",
                "refs/users/01/1000001:refs/heads/mine")
            reader = all_users.Reader(all_users.Repository(folder))
            self.assertEqual(reader.read()["accounts"][0]["name"], "J")
            self.assertEqual(reader.problems, [])


class CommandTest(unittest.TestCase):
    PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "all_users.py")

    def run_program(self, *arguments):
        done = subprocess.run([sys.executable, "-B", self.PROGRAM, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout.decode("utf-8")

    def test_exit_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "repo")
            self.assertEqual(self.run_program("write", path, "3", "1"), (0, ""))
            self.assertEqual(self.run_program("check", path), (0, ""))
            self.assertEqual(self.run_program("show", path)[0], 0)
            self.assertEqual(self.run_program("write", path, "3", "1")[0], 2)
            self.assertEqual(self.run_program("check", folder)[0], 2)
            git("-C", path, "update-ref", "refs/heads/x", all_users.DEFAULTS)
            self.assertEqual(self.run_program("check", path), (1, "refs/heads/x: unknown ref\n"))


if __name__ == "__main__":
    unittest.main()
