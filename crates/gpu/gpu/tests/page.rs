//! The page about GPUs agrees with the table of architectures.

use gpu::ARCHITECTURES;

const PAGE: &str = include_str!("../../../../docs/reference/gpus.md");

#[test]
fn the_page_has_the_architectures_of_the_table() {
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect()))
        .filter(|row: &Vec<&str>| row.len() == 7 && row[2].starts_with('`'))
        .collect();
    assert_eq!(rows.len(), ARCHITECTURES.len());
    for (row, architecture) in rows.iter().zip(&ARCHITECTURES) {
        let class = |id: u32| format!("`{}` {id:#x}", rm::class::name(id).unwrap());
        let chips = architecture.chips.split(':').next().unwrap();
        assert_eq!(row[..2], [architecture.name, chips]);
        let classes = [architecture.channel, architecture.copy, architecture.compute].map(class);
        assert_eq!(row[2..5], classes.each_ref().map(String::as_str), "{architecture:?}");
        let said = if architecture.seen { ["decoded, seen", "run, seen"] } else { ["decoded", "refused"] };
        assert_eq!(row[5..], said, "{architecture:?}");
    }
}
