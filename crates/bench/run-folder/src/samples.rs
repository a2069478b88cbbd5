//! The samples of one part as a Parquet file: one row each, with the cells in sequence.
//!
//! Every column but the flags is delta encoded: times of one cell follow each other, so a sample takes about seven bytes (and no
//! fewer with Snappy). A row group holds samples of one cell only, so a cell is read without the others.

use crate::Error;
use crate::part::{Part, Sample};
use experiment::{Cell, Stage};
use parquet::basic::{Encoding, Repetition, Type as Physical};
use parquet::column::reader::ColumnReaderImpl;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const SCHEMA: &str = "doorbell.samples/1";

/// Rows of a row group.
const ROWS: usize = 1 << 20;
/// Rows converted at a time.
const BATCH: usize = 1 << 13;

const CELL: usize = 0;
const ROUND: usize = 1;
/// Times, in the order of the columns after `round`.
const TIMES: [&str; 6] = ["release_ns", "call_ns", "submitted_ns", "started_ns", "ended_ns", "done_ns"];
const FIRST_TIME: usize = 2;
const CAPPED: usize = FIRST_TIME + TIMES.len();
/// Whether counters were read in its round. Readers in this crate use the experiment instead.
const COUNTERS: &str = "counters";

fn time(s: &Sample, which: usize) -> u64 {
    [s.release_ns, s.call_ns, s.submitted_ns, s.started_ns, s.ended_ns, s.done_ns][which]
}

fn time_mut(s: &mut Sample, which: usize) -> &mut u64 {
    match which {
        0 => &mut s.release_ns,
        1 => &mut s.call_ns,
        2 => &mut s.submitted_ns,
        3 => &mut s.started_ns,
        4 => &mut s.ended_ns,
        _ => &mut s.done_ns,
    }
}

/// The engine's times are unknown for some samples.
fn is_optional(which: usize) -> bool {
    matches!(TIMES[which], "started_ns" | "ended_ns")
}

fn schema() -> Type {
    let column = |name: &str, kind, required| {
        let repetition = if required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        Type::primitive_type_builder(name, kind).with_repetition(repetition).build().map(Arc::new)
    };
    let mut fields = vec![column("cell", Physical::INT32, true), column("round", Physical::INT32, true)];
    fields.extend(TIMES.iter().enumerate().map(|(i, name)| column(name, Physical::INT64, !is_optional(i))));
    fields.extend(["capped", COUNTERS].map(|name| column(name, Physical::BOOLEAN, true)));
    let fields = fields.into_iter().collect::<Result<_, _>>();
    fields.and_then(|f| Type::group_type_builder("sample").with_fields(f).build()).expect("a constant schema")
}

/// Whether the kernel's counters are read around each call of this round, if that is done in each n-th round.
pub fn reads_counters(round: u32, every: u32) -> bool {
    every > 0 && (round + 1).is_multiple_of(every)
}

/// Length and checksum of a file of samples; its part keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sum {
    pub rows: u64,
    pub bytes: u64,
    pub crc32: u32,
}

struct Summed<W> {
    inner: W,
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.crc.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// `stage` is the part's.
pub(crate) fn write(path: &Path, part: &Part, stage: Option<&Stage>, cells: &[Vec<Sample>]) -> Result<Sum, Error> {
    let of_cell = |c: &Cell| serde_json::json!({ "subject": c.subject.name, "bytes": c.bytes });
    let names: Vec<_> = stage.into_iter().flat_map(|s| &s.cells).map(of_cell).collect();
    let counters_every = stage.map_or(0, |s| s.run.counters_every);
    let metadata = [
        ("doorbell.schema", SCHEMA.to_owned()),
        ("doorbell.stage", part.stage.to_string()),
        ("doorbell.repeat", part.repeat.to_string()),
        ("doorbell.began", part.began.clone()),
        ("doorbell.cells", serde_json::Value::from(names).to_string()),
    ];
    let metadata = metadata.map(|(k, v)| KeyValue::new(k.into(), v)).into();
    let properties = WriterProperties::builder()
        .set_created_by(format!("doorbell {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata))
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding("capped".into(), Encoding::RLE)
        .set_column_encoding(COUNTERS.into(), Encoding::RLE)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(ROWS))
        .build();
    let written = output::replace(path, |file| {
        let out = Summed { inner: BufWriter::with_capacity(1 << 16, file), bytes: 0, crc: crc32fast::Hasher::new() };
        let mut out = SerializedFileWriter::new(out, Arc::new(schema()), Arc::new(properties)).map_err(io_error)?;
        for (cell, samples) in cells.iter().enumerate() {
            for some in samples.chunks(ROWS) {
                let mut group = out.next_row_group().map_err(io_error)?;
                write_group(&mut group, cell, some, counters_every).map_err(io_error)?;
                group.close().map_err(io_error)?;
            }
        }
        let mut out = out.into_inner().map_err(io_error)?;
        out.flush()?;
        let rows = cells.iter().map(|c| c.len() as u64).sum();
        Ok::<_, io::Error>(Sum { rows, bytes: out.bytes, crc32: out.crc.finalize() })
    });
    written.map_err(Error::write(path))
}

/// Returns the disk's error if there is one inside.
fn io_error(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

fn write_group<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    cell: usize,
    samples: &[Sample],
    counters_every: u32,
) -> Result<(), ParquetError> {
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    column::<Int32Type, _>(group, samples, |_| Some(cell as i32))?;
    column::<Int32Type, _>(group, samples, |s| Some(i32::try_from(s.round).unwrap_or(i32::MAX)))?;
    for which in 0..TIMES.len() {
        let optional = is_optional(which);
        column::<Int64Type, _>(group, samples, |s| {
            let ns = time(s, which);
            (ns > 0 || !optional).then(|| signed(ns))
        })?;
    }
    column::<BoolType, _>(group, samples, |s| Some(s.capped))?;
    column::<BoolType, _>(group, samples, |s| Some(reads_counters(s.round, counters_every)))
}

fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    samples: &[Sample],
    value: impl Fn(&Sample) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Err(ParquetError::General("no such column".into())) };
    let optional = column.typed::<T>().get_descriptor().max_def_level() > 0;
    let (mut values, mut there) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    for some in samples.chunks(BATCH) {
        values.clear();
        there.clear();
        for s in some {
            let v = value(s);
            there.push(i16::from(v.is_some()));
            values.extend(v);
        }
        let levels = optional.then_some(&there[..]);
        column.typed::<T>().write_batch(&values, levels, None)?;
    }
    column.close()
}

/// A file of samples, complete and of this schema.
pub struct Samples {
    path: PathBuf,
    sum: Sum,
    reader: SerializedFileReader<File>,
}

impl Samples {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn sum(&self) -> Sum {
        self.sum
    }

    /// # Errors
    /// It is missing, does not match the checksum, or has another schema.
    pub fn open(path: &Path, expected: Sum) -> Result<Samples, Error> {
        let damaged = |what: String| Error::damaged(path, what);
        let mut file = File::open(path).map_err(Error::read(path))?;
        let (bytes, crc32) = sum(&mut file).map_err(Error::read(path))?;
        if bytes != expected.bytes {
            return Err(damaged(format!("it has {bytes} bytes, and its part says {}", expected.bytes)));
        }
        if crc32 != expected.crc32 {
            return Err(damaged("damaged: its checksum is not the one in its part".into()));
        }
        let reader = SerializedFileReader::new(file).map_err(|e| damaged(format!("no Parquet file: {e}")))?;
        let metadata = reader.metadata().file_metadata();
        let stated = metadata.key_value_metadata().into_iter().flatten().find(|kv| kv.key == "doorbell.schema");
        let found = stated.and_then(|kv| kv.value.clone()).unwrap_or_default();
        if found != SCHEMA {
            return Err(Error::Version { path: path.into(), found, reads: SCHEMA, by: None });
        }
        let names = |t: &Type| t.get_fields().iter().map(|f| (f.name().to_owned(), f.get_physical_type())).collect();
        let (found, ours): (Vec<_>, Vec<_>) = (names(metadata.schema()), names(&schema()));
        if found != ours {
            return Err(damaged("its columns are not those of samples".into()));
        }
        if metadata.num_rows() != expected.rows as i64 {
            let what = format!("it has {} samples, and its part says {}", metadata.num_rows(), expected.rows);
            return Err(damaged(what));
        }
        Ok(Samples { path: path.into(), sum: expected, reader })
    }

    /// The samples of this cell, in the order in which they were taken.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn cell(&self, cell: usize) -> Result<Vec<Sample>, Error> {
        let mut samples = Vec::new();
        self.each(cell, |some| samples.extend_from_slice(some))?;
        Ok(samples)
    }

    /// As [`Samples::cell`], at most a million of them at a time.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn each(&self, cell: usize, mut f: impl FnMut(&[Sample])) -> Result<(), Error> {
        for i in 0..self.reader.num_row_groups() {
            let about = self.reader.metadata().row_group(i).column(CELL).statistics();
            let other = match about {
                Some(Statistics::Int32(s)) => s
                    .min_opt()
                    .zip(s.max_opt())
                    .is_some_and(|(&min, &max)| (cell as i64) < i64::from(min) || (cell as i64) > i64::from(max)),
                _ => false,
            };
            if !other {
                f(&self.group(i, cell).map_err(|e| Error::damaged(&self.path, e))?);
            }
        }
        Ok(())
    }

    fn group(&self, i: usize, cell: usize) -> Result<Vec<Sample>, ParquetError> {
        let group = self.reader.get_row_group(i)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let cells = values::<Int32Type>(&*group, CELL, rows)?;
        let mut samples = vec![Sample::default(); rows];
        let unsigned =
            |v: i64| u64::try_from(v).map_err(|_| ParquetError::General("a time before the part began".into()));
        for (s, round) in samples.iter_mut().zip(values::<Int32Type>(&*group, ROUND, rows)?) {
            s.round = unsigned(round.unwrap_or(0).into())? as u32;
        }
        for which in 0..TIMES.len() {
            for (s, ns) in samples.iter_mut().zip(values::<Int64Type>(&*group, FIRST_TIME + which, rows)?) {
                *time_mut(s, which) = unsigned(ns.unwrap_or(0))?;
            }
        }
        for (s, capped) in samples.iter_mut().zip(values::<BoolType>(&*group, CAPPED, rows)?) {
            s.capped = capped.unwrap_or(false);
        }
        let mut cells = cells.into_iter();
        samples.retain(|_| cells.next() == Some(Some(cell as i32)));
        Ok(samples)
    }
}

fn sum(file: &mut File) -> io::Result<(u64, u32)> {
    let (mut bytes, mut crc) = (0, crc32fast::Hasher::new());
    let mut some = vec![0; 1 << 18];
    loop {
        match file.read(&mut some)? {
            0 => return Ok((bytes, crc.finalize())),
            n => {
                crc.update(&some[..n]);
                bytes += n as u64;
            }
        }
    }
}

/// All values of a column of a row group; `None` where there is none.
fn values<T: DataType>(
    group: &dyn RowGroupReader,
    column: usize,
    rows: usize,
) -> Result<Vec<Option<T::T>>, ParquetError>
where
    T::T: Copy,
{
    let optional = group.metadata().column(column).column_descr().max_def_level() > 0;
    let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(group.get_column_reader(column)?);
    let (mut values, mut there) = (Vec::with_capacity(rows), Vec::new());
    while values.len().max(there.len()) < rows {
        let wanted = rows - values.len().max(there.len());
        let (got, _, _) = reader.read_records(wanted, optional.then_some(&mut there), None, &mut values)?;
        if got == 0 {
            return Err(ParquetError::General(format!("column {column} ends early")));
        }
    }
    if !optional {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(there.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
}
