//! What a header of cbindgen's declares, read line by line.

/// A name with its C type: a parameter, or a field.
#[derive(Debug, PartialEq, Eq)]
pub struct Typed {
    pub of: String,
    pub name: String,
}

/// One declaration, with the comment above it.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    Constant {
        value: String,
    },
    /// Another name of a type.
    Alias {
        of: String,
    },
    Callback {
        parameters: Vec<Typed>,
    },
    Struct {
        fields: Vec<Typed>,
    },
    Function {
        answers: String,
        parameters: Vec<Typed>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    /// In lines that follow each other as one.
    pub about: String,
    pub kind: Kind,
}

/// # Panics
/// At what cbindgen does not write.
pub fn declared(header: &str) -> Vec<Declared> {
    let (mut all, mut about) = (Vec::new(), String::new());
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("//") {
            about += text;
            continue;
        }
        let mut next = |name: &str, kind| {
            let about = std::mem::take(&mut about).trim().to_owned();
            all.push(Declared { name: name.to_owned(), about, kind });
        };
        if let Some((name, value)) = line.strip_prefix("#define DOORBELL_").and_then(|rest| rest.split_once(' ')) {
            next(&format!("DOORBELL_{name}"), Kind::Constant { value: value.to_owned() });
        } else if line == "typedef struct {" {
            let mut fields = Vec::new();
            let end = loop {
                match lines.next().expect("a struct that ends").trim() {
                    comment if comment.starts_with("//") => {}
                    end if end.starts_with('}') => break end,
                    field => fields.push(typed(field.trim_end_matches(';'))),
                }
            };
            next(end.trim_matches(['}', ' ', ';']), Kind::Struct { fields });
        } else if let Some(alias) = line.strip_prefix("typedef ") {
            match alias.split_once("(*") {
                Some((_, rest)) => {
                    let (name, parameters) = rest.split_once(")(").expect("a function's type");
                    next(name, Kind::Callback { parameters: list(parameters) });
                }
                None => {
                    let Typed { of, name } = typed(alias.trim_end_matches(';'));
                    next(&name, Kind::Alias { of });
                }
            }
        } else if line.starts_with("static inline ") {
            // For C and C++ alone.
            about.clear();
        } else if line.starts_with(char::is_alphabetic) && line.contains('(') {
            let mut whole = line.to_owned();
            while !whole.ends_with(';') {
                whole.push_str(lines.next().expect("a function that ends").trim_start());
            }
            let (head, parameters) = whole.split_once('(').expect("a function");
            let Typed { of, name } = typed(head);
            next(&name, Kind::Function { answers: of, parameters: list(parameters) });
        }
    }
    all
}

fn list(parameters: &str) -> Vec<Typed> {
    let parameters = parameters.trim_end_matches([';', ')']);
    if parameters == "void" { Vec::new() } else { parameters.split(',').map(|one| typed(one.trim())).collect() }
}

/// `const char *text`: the stars are the type's.
fn typed(text: &str) -> Typed {
    let at = text.rfind([' ', '*']).expect("a type and a name") + 1;
    Typed { of: text[..at].trim().to_owned(), name: text[at..].to_owned() }
}

/// The text in front of `Cost:`, and what follows each of these words; two or more may share one (`Cost, threads, errors: as ..`).
pub fn parts(about: &str) -> (&str, [Option<&str>; 3]) {
    const WORDS: [[&str; 4]; 3] = [
        ["Cost: ", "Cost, threads, errors: ", "Cost, threads: ", "Cost: "],
        ["Threads: ", "Cost, threads, errors: ", "Cost, threads: ", "Threads, errors: "],
        ["Errors: ", "Cost, threads, errors: ", "Threads, errors: ", "Errors: "],
    ];
    let end = |from: usize| {
        let next = WORDS.iter().flatten().filter_map(|word| about[from..].find(word)).min();
        next.map_or(about.len(), |next| from + next)
    };
    let part = |words: [&str; 4]| {
        let at = words.iter().find_map(|word| about.find(word).map(|at| at + word.len()))?;
        Some(about[at..end(at)].trim())
    };
    (about[..end(0)].trim(), WORDS.map(part))
}

#[test]
fn declarations_are_read() {
    let header = "#ifndef DOORBELL_H\n#define DOORBELL_H\n// Done.\n#define DOORBELL_OK 0\n\ntypedef uint64_t doorbell_a_t;\n\n// One.\n// \
                  Two.\ntypedef struct {\n  // Of it.\n  const char *text;\n} doorbell_s_t;\n\n// Does it. \
                  Cost: none.\n// Threads: any.\nint32_t doorbell_do(doorbell_a_t a,\n                    void **b);\n";
    let all = declared(header);
    let named: Vec<(&str, &str)> = all.iter().map(|one| (one.name.as_str(), one.about.as_str())).collect();
    let texts = [("DOORBELL_OK", "Done."), ("doorbell_a_t", ""), ("doorbell_s_t", "One. Two.")];
    assert_eq!(named[..3], texts);
    let typed = |of: &str, name: &str| Typed { of: of.into(), name: name.into() };
    assert_eq!(all[2].kind, Kind::Struct { fields: vec![typed("const char *", "text")] });
    let parameters = vec![typed("doorbell_a_t", "a"), typed("void **", "b")];
    assert_eq!(all[3].kind, Kind::Function { answers: "int32_t".into(), parameters });
    assert_eq!(parts(&all[3].about), ("Does it.", [Some("none."), Some("any."), None]));
    assert_eq!(parts("It. Cost, threads, errors: as that."), ("It.", [Some("as that."); 3]));
}
