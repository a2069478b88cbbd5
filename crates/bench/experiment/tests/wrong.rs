//! Every mistake is reported with its line and column, the allowed values, and the probable intention.

use experiment::read;

/// A correct file, with `line` added at its end.
const GOOD: &str = r#"[run]
duration = "10s"
[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
sizes = ["8B", "4KiB"]
[[subject]]
call = "launch"
[[load]]
name = "crowd"
route = "host->cuda->gpu0"
bytes = "4MiB"
count = 8
"#;

fn error(text: &str) -> String {
    match read(text, "x.toml", &[]) {
        Ok(_) => panic!("this is read:\n{text}"),
        Err(e) => e.to_string(),
    }
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    let message = error(text);
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

/// `GOOD` with one line replaced, which is then wrong in line `line`.
#[track_caller]
fn instead(from: &str, to: &str, words: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let line = GOOD[..GOOD.find(from).unwrap()].lines().count() + 1;
    let text = GOOD.replacen(from, to, 1);
    let message = error(&text);
    let at = to.find('\n').map_or(line, |_| line + to.lines().count() - 1);
    assert!(message.starts_with(&format!("x.toml:{at}:")), "line {at}: {message}");
    says(&text, words);
}

#[track_caller]
fn with(more: &str, words: &[&str]) {
    says(&format!("{GOOD}{more}"), words);
}

#[test]
fn the_good_one_is_good() {
    read(GOOD, "x.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn invalid_toml() {
    says("[run\n", &["x.toml:1:", "not TOML"]);
    says("[run]\nduration = 10s\n", &["x.toml:2:", "not TOML"]);
    says("[run]\nseed = 1\nseed = 2\n", &["x.toml:3:", "duplicate key"]);
    says("", &["x.toml:1:1", "how long"]);
}

#[test]
fn unknown_keys_and_sections() {
    instead("duration = \"10s\"", "duration = \"10s\"\nround = 3", &["`round` in [run]", "did you mean `rounds`?"]);
    instead("duration = \"10s\"", "duration = \"10s\"\ncounters_every = 3", &["did you mean `counters-every`?"]);
    instead(
        "duration = \"10s\"",
        "duration = \"10s\"\nsizes = \"4B\"",
        &["no key `sizes` in [run]", "belongs in [[subject]]"],
    );
    instead("call = \"launch\"", "call = \"launch\"\nbytes = 4", &["[[subject]] `launch`", "allowed:", "`sizes`"]);
    instead("count = 8", "count = 8\nthreads = 8", &["no key `threads` in [[load]] `crowd`", "`count`"]);
    with("[matrx]\n", &["x.toml:14:2", "no section `matrx`", "did you mean `matrix`?"]);
    says(&format!("rounds = 3\n{GOOD}"), &["x.toml:1:1", "top of the file", "belongs in [run]"]);
    says(&GOOD.replace("[[subject]]", "[[subjects]]"), &["x.toml:3:", "did you mean `subject`?"]);
}

#[test]
fn sections_of_the_wrong_kind() {
    says("run = 3\n", &["x.toml:1:1", "[run]"]);
    says("[[run]]\nduration = \"1s\"\n", &["one [run] only"]);
    says("[run]\nduration = \"1s\"\n[subject]\ncall = \"launch\"\n", &["x.toml:3:", "[[subject]]", "double brackets"]);
    says("subject = [3]\n[run]\nduration = \"1s\"\n", &["x.toml:1:1", "[[subject]]"]);
    says("[run]\nduration = \"1s\"\n", &["no [[subject]]", "nothing is measured"]);
}

#[test]
fn values_of_the_wrong_kind() {
    instead("duration = \"10s\"", "duration = 10", &["[run] `duration`", "the number 10", "text in quotes"]);
    instead("duration = \"10s\"", "duration = \"10\"", &["unit", "60s"]);
    instead("duration = \"10s\"", "duration = \"0s\"", &["more than 0"]);
    instead("duration = \"10s\"", "duration = \"10s\"\nrounds = 0", &["`rounds`", "from 1 to"]);
    instead("duration = \"10s\"", "duration = \"10s\"\nrounds = -1", &["the number -1"]);
    instead("duration = \"10s\"", "duration = \"10s\"\nrounds = 1.5", &["1.5", "whole number"]);
    instead("duration = \"10s\"", "duration = \"10s\"\nseed = 99999999999999999999", &["whole number"]);
    instead("duration = \"10s\"", "duration = \"10s\"\nseed = 2020-01-01", &["2020-01-01"]);
    instead("duration = \"10s\"", "duration = \"10s\"\ngpu = \"software\"", &["`gpu`", "`real`, `soft`"]);
    instead("duration = \"10s\"", "duration = \"10s\"\ncounters-every = 1", &["no round is left"]);
    instead("duration = \"10s\"", "duration = \"10s\"\nmeter = \"50ms\"", &["50ms is too short", "100ms and more"]);
    instead("duration = \"10s\"", "duration = \"10s\"\npolicy = \"phase_fair\"", &["did you mean `phase-fair`?"]);
    instead("call = \"launch\"", "call = \"launch\"\nrests = \"yes\"", &["`true` or `false`"]);
    instead("call = \"launch\"", "call = \"launch\"\narrival = \"paced(50)\"", &["`arrival`", "unit"]);
    instead("call = \"launch\"", "call = \"launch\"\narrival = \"closed(33)\"", &["a number from 1 to 32"]);
    instead("call = \"launch\"", "call = \"launch\"\nclass = \"fifo(100)\"", &["1 to 99"]);
    instead("bytes = \"4MiB\"", "bytes = \"4MB\"", &["[[load]] `crowd` `bytes`", "\"MB\""]);
    instead("bytes = \"4MiB\"", "bytes = 0", &["0 bytes"]);
    instead("bytes = \"4MiB\"", "bytes = \"4B..8B\"", &["more than one size"]);
    instead("count = 8", "count = 8\nrate = 0", &["`rate`", "count = 0"]);
    instead("count = 8", "count = 1025", &["from 0 to 1024"]);
    instead("sizes = [\"8B\", \"4KiB\"]", "sizes = []", &["`sizes`", "empty"]);
    instead("sizes = [\"8B\", \"4KiB\"]", "sizes = [\"8B\", 0]", &["x.toml:6:16", "from 1 byte"]);
    instead("sizes = [\"8B\", \"4KiB\"]", "sizes = [\"8B\", \"4KB\"]", &["x.toml:6:16", "KiB is 1024"]);
    instead("sizes = [\"8B\", \"4KiB\"]", "sizes = [[8]]", &["list within the list"]);
    says(&format!("name = \"a b\"\n{GOOD}"), &["x.toml:1:8", "letters, digits"]);
    says(&format!("name = \"..\"\n{GOOD}"), &["letters, digits"]);
}

#[test]
fn a_file_without_a_valid_name() {
    let e = read(GOOD, "/tmp/my file.toml", &[]).unwrap_err().to_string();
    assert!(e.contains("no `name`"), "{e}");
    assert_eq!(read(GOOD, "/tmp/my-file.toml", &[]).unwrap().name, "my-file");
    assert_eq!(read(GOOD, r"C:\me\my-file", &[]).unwrap().name, "my-file");
}

#[test]
fn what_is_missing() {
    says(&GOOD.replace("duration = \"10s\"\n", ""), &["[run] does not say how long", "samples = 1000"]);
    says(&GOOD.replace("call = \"launch\"\n", ""), &["no `route` and no `call`"]);
    says(&GOOD.replace("call = \"launch\"", "call = \"launch\"\nroute = \"a->b->c\""), &["a `route` and a `call`"]);
    says(&GOOD.replace("sizes = [\"8B\", \"4KiB\"]\n", ""), &["[[subject]] `cuda` has no `sizes`", "[matrix]"]);
    says(&GOOD.replace("bytes = \"4MiB\"\n", ""), &["[[load]] `crowd` has no `bytes`"]);
    says(&GOOD.replace("call = \"launch\"", "call = \"\""), &["`call`", "empty"]);
}

#[test]
fn names() {
    instead("call = \"launch\"", "call = \"launch\"\nname = \"cuda\"", &["`cuda` is there already in line 4"]);
    instead("name = \"crowd\"", "name = \"launch\"", &["`launch` is there already"]);
    instead("name = \"crowd\"", "name = \"run\"", &["\"run\" means something else"]);
    instead("name = \"crowd\"", "name = \"*\"", &["means something else"]);
    instead("name = \"crowd\"", "name = \" a\"", &["means something else"]);
    instead("name = \"crowd\"", "name = \"a\\nb\"", &["control characters"]);
}

#[test]
fn axes() {
    with("[matrix]\ncount = [1]\n", &["x.toml:15:1", "[matrix] cannot change `count`", "NAME.key"]);
    with("[matrix]\nbyte = [1]\n", &["did you mean `bytes`?"]);
    with("[matrix]\nrun.clas = [\"other\"]\n", &["did you mean `run.class`?"]);
    with("[matrix]\nrun.record = [\"all\"]\n", &["\"all\" is not known", "`commands`"]);
    with(
        "[matrix]\nrun.record = [\"commands\"]\npolicy = [\"pi\"]\n",
        &["under the policy `pi`", "policy = \"stock\""],
    );
    with("[matrix]\ncrwd.count = [1]\n", &["no subject or load `crwd`", "did you mean `crowd`?"]);
    with("[matrix]\n\"crowd.threads\" = [1]\n", &["cannot change `threads` of the load `crowd`", "`count`"]);
    with("[matrix]\ncuda.count = [1]\n", &["cannot change `count` of the subject `cuda`", "`arrival`"]);
    with("[matrix]\ncrowd.count = []\n", &["x.toml:15:15", "empty"]);
    with("[matrix]\ncrowd.count = [1, \"many\"]\n", &["x.toml:15:19", "\"many\"", "0 to 1024"]);
    with("[matrix]\ncrowd.count = [1, 8, 1]\n", &["x.toml:15:22", "there twice"]);
    with("[matrix]\ncrowd.count = [1, [2]]\n", &["a list"]);
    with("[matrix]\npolicy = [\"stock\", \"pie\"]\n", &["x.toml:15:20", "did you mean `pi`?"]);
    with("[matrix]\ncuda.arrival = [\"paced(0s)\"]\n", &["period of 0"]);
    with("[matrix]\nbytes = \"4B..2B\"\n", &["ends before"]);
    with("[matrix]\ncuda.route = [\"a->b->c\"]\ncuda.call = [\"launch\"]\n", &["change the same", "NAME.what"]);
}

#[test]
fn what_is_compared_and_asserted() {
    with("[compare]\nbaseline = \"cud\"\n", &["x.toml:15:12", "did you mean `cuda`?"]);
    with("[compare]\n", &["has no `baseline`"]);
    let own = |name: &str, more: &str| {
        GOOD.replace("call = \"launch\"\n", &format!("call = \"launch\"\nbaseline = \"{name}\"\n")) + more
    };
    says(&own("cud", "[compare]\nbaseline = \"cuda\"\n"), &["x.toml:9:12", "no subject", "did you mean `cuda`?"]);
    says(&own("crowd", "[compare]\nbaseline = \"cuda\"\n"), &["x.toml:9:12", "no subject"]);
    says(&own("cuda", ""), &["x.toml:9:12", "no [compare]"]);
    read(&own("cuda", "[compare]\nbaseline = \"cuda\"\n"), "x.toml", &["compare.baseline=".into()]).unwrap();
    with("[compare]\nbaseline = \"pi\"\n", &["no subject and no policy"]);
    with("[compare]\nbaseline = \"cuda\"\nmetric = \"p95\"\n", &["no metric", "`p99`"]);
    with("[[assert]]\nsubject = \"cud\"\nat-most = \"5us\"\n", &["did you mean `cuda`?"]);
    with("[[assert]]\nmetric = \"max\"\n", &["has no bound", "at-most"]);
    with("[[assert]]\nat-most = \"5us\"\nat-least = \"1us\"\n", &["more than one bound"]);
    with("[[assert]]\nat-most = 5\n", &["with a unit", "50us"]);
    with("[[assert]]\nat-most-times = \"1.2 cud\"\n", &["x.toml:15:17", "did you mean `cuda`?"]);
    with("[[assert]]\nat-most-times = \"cuda\"\n", &["1.2 cuda"]);
    with("[[assert]]\nwithin-best = \"5\"\n", &["x.toml:15:", "5%, 100ns"]);
    with("[[assert]]\nwithin-best = \"5%\"\nat-most = \"5us\"\n", &["more than one bound"]);
    with("[[assert]]\nmetric = \"rate\"\nwithin-best = \"5%\"\n", &["a metric that is a time"]);
    with("[[assert]]\nat-most = \"5us\"\namong = [\"cuda\"]\n", &["no `within-best` next to it"]);
    with("[[assert]]\nwithin-best = \"5%\"\namong = []\n", &["the list is empty"]);
    with("[[assert]]\nwithin-best = \"5%\"\namong = \"cuda\"\n", &["a list of names"]);
    with("[[assert]]\nwithin-best = \"5%\"\namong = [\"cud\"]\n", &["did you mean `cuda`?"]);
    with("[[assert]]\nwithin-best = \"5%\"\namong = [\"cuda\", \"cuda\"]\n", &["is there twice"]);
    with(
        "[[assert]]\nsubject = \"cuda\"\nwithin-best = \"5%\"\namong = [\"cuda\"]\n",
        &["is the judged subject itself"],
    );
    with("[[assert]]\nmetric = \"misses\"\nat-most = \"0.1%\"\n", &["`cuda` has no deadline", "deadline ="]);
    with("[[assert]]\nmetric = \"rate\"\nabove-noise = \"5us\"\n", &["not a time"]);
    with("[[assert]]\nmetric = \"rate\"\nat-least = \"5GB\"\n", &["10GB/s"]);
}

#[test]
fn limits_are_named_with_their_figure() {
    let loads = format!("{}[[load]]\ncall = \"malloc\"\ncount = 25\n", GOOD.replace("count = 8", "count = 1000"));
    says(&loads, &["x.toml:9:", "the loads have 1025 threads", "at most 1024"]);
    with("[[load]]\ncall = \"malloc\"\n[matrix]\nmalloc.count = [1, 1017]\n", &["1025 threads at malloc.count=1017"]);
    says(&GOOD.replace("4KiB", "32GiB"), &["x.toml:3:", "buffers of a stage are 65 GiB", "at most 64 GiB"]);
    with("[matrix]\ncrowd.bytes = [\"4MiB\", \"4GiB\"]\n", &["65 GiB together at crowd.bytes=4GiB", "at most 64 GiB"]);
    with("[matrix]\ncrowd.count = [0]\nbytes = \"4B..64GiB\"\n", &["buffers"]);
    let hundred: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let rates: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    let axes = format!("[matrix]\ncrowd.count = [{}]\ncrowd.rate = [{}]\n", hundred.join(","), rates.join(","));
    with(&axes, &["x.toml:14:", "101 x 100 stages", "at most 10000"]);
    let many = "[matrix]\ncrowd.rate = [\"1/s\", \"2/s\"]\nbytes = \"1B..4096B/1B\"\npolicy = [\"pi\", \"guard\"]\n";
    with(many, &["2 x 4096 x 2 stages"]);
}

#[test]
fn options_are_named_instead_of_lines() {
    let says = |option: &str, words: &[&str]| {
        let e = read(GOOD, "x.toml", &[option.to_owned()]).expect_err(option).to_string();
        assert!(e.starts_with(&format!("--set {option}: ")), "{e}");
        assert!(words.iter().all(|word| e.contains(word)), "{e}");
    };
    says("run.duration=60", &["[run] `duration`", "unit"]);
    says("run.durations=60s", &["did you mean `duration`?"]);
    says("rnu.duration=60s", &["no section, subject or load `rnu`", "did you mean `run`?"]);
    says("run.duration", &["there is no `=`"]);
    says("duration=60s", &["belongs in [run]"]);
    says("crowd.count=many", &["whole number"]);
    says("crowd.arrival=closed(1)", &["no key `arrival` in [[load]] `crowd`"]);
    says("matrix.policy=stock,pie", &["did you mean `pi`?"]);
    says("matrix.crowd.counts=1,2", &["did you mean `count`?"]);
    says("assert.at-most=5us", &["no names"]);
    says("compare.baseline=cud", &["did you mean `cuda`?"]);
    says("matrix.policy=[\"stock\", \"pie\"]", &["did you mean `pi`?"]);
    says("launch.rests=1", &["`true` or `false`"]);
}

#[test]
fn sweeps_and_sums() {
    let sweep = |text: &str| format!("route = \"host->cuda->gpu0\"\naddresses = \"{text}\"");
    let each =
        |text: &str, words: &[&str]| says(&GOOD.replacen("route = \"host->cuda->gpu0\"", &sweep(text), 1), words);
    each("sweeps(64MiB,1GiB)", &["x.toml:6:", "not known", "did you mean `sweep(64MiB,1GiB)`"]);
    each("sweep(64MiB)", &["x.toml:6:", "no step and range", "sweep(64MiB,4GiB)"]);
    each("sweep(2GiB,1GiB)", &["longer than its range"]);
    each("sweep(4KiB,1GiB)", &["262144 places", "at most 4096"]);
    each("sweep(64MiB,1GiB)", &["x.toml:3:", "`cuda` has 16 places", "rounds = 16"]);
    let counted = "rounds = 20\ncounters-every = 2\nduration = \"10s\"";
    let text = GOOD.replacen("duration = \"10s\"", counted, 1);
    says(&text.replacen("route = \"host->cuda->gpu0\"", &sweep("sweep(64MiB,1GiB)"), 1), &["counters-every = 0"]);

    with("[[repay]]\neach = \"cuda\"\nagainst = \"cuda\"\n", &["x.toml:14:", "has no `once`"]);
    with(
        "[[repay]]\nonce = \"launch\"\neach = \"cuda\"\nagainst = \"launch + cuba\"\n",
        &["x.toml:17:", "no subject \"cuba\"", "did you mean `cuda`", "` + `"],
    );
}
