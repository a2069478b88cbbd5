//! Checks every listed route of this machine whose name contains one of the given words (or every route): random bytes of many
//! sizes, compared with the guards at both ends. `verify_routes split batch gpu1 wc`. With --soft on the preloaded software GPU.
//! Exit code 1 where bytes are wrong, 77 without a GPU. Measures no times.

use copy::{Error, Machine, Where, names, open, verify};
use std::process::ExitCode;
use std::time::Duration;

const SIZES: [u64; 10] = [1, 4, 8, 64, 4095, 4097, 65_537, 1 << 20, (1 << 20) + 3, 16 << 20];
const PATIENCE: Duration = Duration::from_secs(10);

enum Found {
    Right(usize),
    Unavailable(String),
    Wrong(String),
}

fn all_sizes(machine: &Machine, name: &str) -> Result<Found, Error> {
    let mut right = 0;
    let mut why = String::from("no size");
    for bytes in SIZES {
        let mut route = match open(machine, name, bytes) {
            Ok(route) => route,
            Err(Error::Unavailable(unavailable)) => {
                why = unavailable.reason;
                continue;
            }
            Err(error) => return Err(error),
        };
        match verify(&mut route, bytes, bytes, PATIENCE) {
            Ok(None) => right += 1,
            Ok(Some(wrong)) => return Ok(Found::Wrong(format!("{bytes} bytes: {wrong}"))),
            Err(Error::Unavailable(unavailable)) => why = unavailable.reason,
            Err(error) => return Err(error),
        }
    }
    Ok(if right > 0 { Found::Right(right) } else { Found::Unavailable(why) })
}

fn main() -> ExitCode {
    let (options, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    let place = if options.iter().any(|option| option == "--soft") { Where::Soft } else { Where::Real };
    let machine = match Machine::open(place) {
        Ok(machine) => machine,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(77);
        }
    };
    let mut failed = 0;
    for listed in names(&machine) {
        if !words.is_empty() && !words.iter().any(|word| listed.name.contains(word.as_str())) {
            continue;
        }
        match all_sizes(&machine, &listed.name) {
            Ok(Found::Right(sizes)) => println!("{}: right, {sizes} sizes", listed.name),
            Ok(Found::Unavailable(why)) => println!("{}: unavailable: {why}", listed.name),
            Ok(Found::Wrong(wrong)) => {
                failed += 1;
                println!("{}: WRONG: {wrong}", listed.name);
            }
            Err(error) => {
                failed += 1;
                println!("{}: ERROR: {error}", listed.name);
            }
        }
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
