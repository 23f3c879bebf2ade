use proptest::prelude::*;

use super::*;
use crate::testing::fixed_seed;

/// Keys and notes of Go.
const VECTORS: &str = include_str!("../../vectors/note.txt");

const HEAD: &str = "go.sum database tree\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n";

fn signer(name: &str, seed: u8) -> NoteSigner {
    NoteSigner::from_seed(name, &[seed; 32]).unwrap()
}

#[test]
fn keys_and_notes_are_those_of_go() {
    let mut signers = Vec::new();
    let mut notes = 0;
    for line in VECTORS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["key", number, secret, public] = words[..] {
            let signer = NoteSigner::parse(secret).unwrap();
            let seed = [number.parse().unwrap(); 32];
            let same = NoteSigner::from_seed(signer.name(), &seed).unwrap();
            assert_eq!(same.secret_text(), secret);
            assert_eq!(signer.verifier().to_string(), public);
            assert_eq!(public.parse().as_ref(), Ok(signer.verifier()));
            signers.push(signer);
        }
        let Some((numbers, note)) = line
            .strip_prefix("note ")
            .and_then(|rest| rest.split_once(" \""))
        else {
            continue;
        };
        let note = note.strip_suffix('"').unwrap().replace("\\n", "\n");
        let by: Vec<&NoteSigner> = numbers
            .split(' ')
            .map(|number| &signers[number.parse::<usize>().unwrap() - 1])
            .collect();
        let known: Vec<NoteVerifier> = signers[..3]
            .iter()
            .map(|key| key.verifier().clone())
            .collect();
        let opened = open_note(note.as_bytes(), &known).unwrap();
        let unknown = by.iter().filter(|key| key.name() == "other").count();
        assert_eq!(opened.unverified.len(), unknown);
        assert_eq!(opened.verified.len() + unknown, by.len());
        // Signatures of a key and a text are always the same, so Go opens what is signed here.
        assert_eq!(sign_note(&opened.text, &by).unwrap(), note);
        notes += 1;
    }
    assert_eq!((signers.len(), notes), (4, 12));
}

#[test]
fn one_known_key_of_a_rotation_is_enough() {
    let (old, new) = (signer("log", 1), signer("log", 2));
    let note = sign_note(HEAD, &[&old, &new]).unwrap();
    for known in [&old, &new] {
        let opened = open_note(note.as_bytes(), &[known.verifier().clone()]).unwrap();
        assert_eq!(opened.text, HEAD);
        assert_eq!((opened.verified.len(), opened.unverified.len()), (1, 1));
        assert_eq!(opened.verified[0].key_hash, known.key_hash());
    }
    let stranger = signer("log", 3).verifier().clone();
    assert_eq!(
        open_note(note.as_bytes(), &[stranger]),
        Err(NoteError::Unverified)
    );
}

#[test]
fn a_new_signature_replaces_one_of_the_same_key() {
    let (old, new) = (signer("log", 1), signer("log", 2));
    let known = [old.verifier().clone(), new.verifier().clone()];
    let first = open_note(sign_note(HEAD, &[&old]).unwrap().as_bytes(), &known).unwrap();
    let both = first.sign(&[&new]).unwrap();
    assert_eq!(both, sign_note(HEAD, &[&old, &new]).unwrap());
    let again = open_note(both.as_bytes(), &known)
        .unwrap()
        .sign(&[&old])
        .unwrap();
    assert_eq!(again, sign_note(HEAD, &[&new, &old]).unwrap());
}

#[test]
fn a_changed_text_or_signature_is_refused() {
    let key = signer("log", 1);
    let known = [key.verifier().clone()];
    let note = sign_note(HEAD, &[&key]).unwrap();
    let name = format!("log+{:08x}", key.key_hash());
    let changed = note.replace("\n0\n", "\n1\n");
    assert_eq!(
        open_note(changed.as_bytes(), &known),
        Err(NoteError::InvalidSignature(name.clone()))
    );
    // A second, invalid signature of the key is not looked at.
    let line = note.lines().last().unwrap();
    let start = open_note(note.as_bytes(), &known).unwrap();
    let twice = format!("{note}{line}\n");
    assert_eq!(open_note(twice.as_bytes(), &known), Ok(start.clone()));
    // Nobody can make two keys of one name and hash, but a configuration could say so.
    let keys = [known[0].clone(), known[0].clone()];
    assert_eq!(open_note(note.as_bytes(), &keys), Ok(start));
    let short = NoteSignature {
        name: "log".to_owned(),
        key_hash: key.key_hash(),
        signature: vec![1],
    };
    let short = format!("{HEAD}\n{}", short.line());
    assert_eq!(
        open_note(short.as_bytes(), &known),
        Err(NoteError::InvalidSignature(name))
    );
}

#[test]
fn messages_that_are_no_notes_are_refused() {
    let key = signer("log", 1);
    let note = sign_note(HEAD, &[&key]).unwrap();
    let line = note.lines().last().unwrap();
    let many: Vec<String> = (0..101).map(|n| format!("— other{n} AAAAAAA=\n")).collect();
    for bad in [
        String::new(),
        HEAD.to_owned(),
        format!("{HEAD}\n"),
        note.trim_end().to_owned(),
        note.replace("— ", "- "),
        note.replace("— log ", "— log"),
        note.replace("— log ", "— "),
        note.replace("— log ", "— l+g "),
        note.replace("tree", "tree\t"),
        format!("{note}\u{1}\n"),
        format!("{HEAD}\n— log AAAAAA==\n"),
        format!("{HEAD}\n{line}x\n"),
        format!("{note}{}", many.concat()),
        format!("{}{note}", "x".repeat(MAX_NOTE)),
    ] {
        let result = open_note(bad.as_bytes(), &[key.verifier().clone()]);
        assert_eq!(result, Err(NoteError::Malformed), "{bad}");
    }
    assert_eq!(open_note(b"\xff\n\n", &[]), Err(NoteError::Malformed));
    for bad in ["", "x", "x\r\n", "\0\n"] {
        assert_eq!(sign_note(bad, &[&key]), Err(NoteError::BadText));
    }
}

#[test]
fn texts_that_are_no_keys_are_refused() {
    let key = signer("log", 1);
    let public = key.verifier().to_string();
    let hash = format!("{:08x}", key.key_hash());
    let parse = |text: &str| text.parse::<NoteVerifier>().unwrap_err();
    for bad in [
        "",
        "log",
        "log+",
        &public.replace(&hash, "12345"),
        &public.replace(&hash, "+1234567"),
        &public[..40],
    ] {
        assert!(matches!(parse(bad), InvalidNoteKey::Malformed), "{bad}");
    }
    assert_eq!(
        parse(&public.replace("log", "logs")),
        InvalidNoteKey::WrongHash
    );
    assert_eq!(
        parse(&public.replace(&hash, "00000000")),
        InvalidNoteKey::WrongHash
    );
    assert_eq!(
        parse(&public.replace("+A", "+B")),
        InvalidNoteKey::UnknownAlgorithm
    );
    for bad in ["", "l g", "l\u{a0}g", "l\u{1}g"] {
        assert_eq!(parse(&public.replace("log", bad)), InvalidNoteKey::BadName);
        assert_eq!(
            NoteSigner::from_seed(bad, &[0; 32]).map(|_| ()),
            Err(InvalidNoteKey::BadName)
        );
    }
    let secret = key.secret_text();
    assert_eq!(
        NoteSigner::parse(&public).map(|_| ()),
        Err(InvalidNoteKey::Malformed)
    );
    let other = secret.replace("log", "logs");
    assert_eq!(
        NoteSigner::parse(&other).map(|_| ()),
        Err(InvalidNoteKey::WrongHash)
    );
}

#[test]
fn secret_keys_are_not_in_debug_output() {
    let key = signer("log", 1);
    let secret = key.secret_text();
    let base64 = secret.rsplit('+').next().unwrap();
    let shown = format!("{key:?} {key:#?}");
    assert!(shown.contains("log+"));
    assert!(
        !shown.contains(base64) && !shown.contains("1, 1"),
        "{shown}"
    );
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn readers_take_any_bytes(
        before in prop::collection::vec(any::<u8>(), 0..20),
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let key = signer("log", 1);
        let known = [key.verifier().clone()];
        let mut note = sign_note(HEAD, &[&key, &signer("other", 2)]).unwrap().into_bytes();
        let cut = cut.index(note.len());
        note[cut] = byte;
        if let Ok(opened) = open_note(&note, &known) {
            // Only the signature that nobody checks can have changed.
            prop_assert_eq!(opened.text, HEAD);
        }
        note.truncate(cut);
        prop_assert!(open_note(&note, &known).is_err() || note.ends_with(b"\n"));
        prop_assert!(open_note(&before, &known).is_err());
        let text = String::from_utf8_lossy(&before);
        prop_assert!(text.parse::<NoteVerifier>().is_err());
        let secret = format!("PRIVATE+KEY+{text}");
        prop_assert!(NoteSigner::parse(&secret).is_err());
    }

    #[test]
    fn any_text_is_signed_and_opened(text in "(\\PC*\n){1,5}", seeds in prop::collection::btree_set(any::<u8>(), 1..4)) {
        let signers: Vec<NoteSigner> = seeds.iter().map(|seed| signer("log", *seed)).collect();
        let known: Vec<NoteVerifier> = signers.iter().map(|key| key.verifier().clone()).collect();
        let note = sign_note(&text, &signers.iter().collect::<Vec<_>>()).unwrap();
        let opened = open_note(note.as_bytes(), &known).unwrap();
        prop_assert_eq!(&opened.text, &text);
        prop_assert_eq!(opened.verified.len(), signers.len());
        prop_assert_eq!(opened.sign(&[]).unwrap(), note);
    }
}
