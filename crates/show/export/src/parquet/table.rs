//! One table as a Parquet file: rows are added one by one, and written in groups of bounded size.

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Rows of a group, and bytes of its texts, at most.
const ROWS: usize = 1 << 15;
const TEXT: usize = 4 << 20;

/// A table. Its columns are what the first row has; every row has the same ones in the same order, each of which may be null.
pub struct Table {
    path: PathBuf,
    metadata: Arc<Vec<KeyValue>>,
    columns: Vec<Column>,
    /// Rows and bytes of text that are not written yet.
    rows: usize,
    text: usize,
    /// All rows.
    count: u64,
    file: Option<SerializedFileWriter<BufWriter<File>>>,
}

struct Column {
    name: &'static str,
    values: Values,
    /// For each row, 1 if there is a value.
    there: Vec<i16>,
}

enum Values {
    Signed(Vec<i64>),
    Unsigned(Vec<i64>),
    Double(Vec<f64>),
    Flag(Vec<bool>),
    Text(Vec<ByteArray>),
}

/// The cells of one row, from left to right.
pub struct Row<'a> {
    table: &'a mut Table,
    column: usize,
}

impl Row<'_> {
    pub fn int(&mut self, name: &'static str, value: impl Into<Option<i64>>) -> &mut Self {
        let column = self.cell(name, || Values::Signed(Vec::new()));
        if let (Values::Signed(values), Some(value)) = (&mut column.values, value.into()) {
            values.push(value);
            column.there.push(1);
        }
        self
    }

    pub fn uint(&mut self, name: &'static str, value: impl Into<Option<u64>>) -> &mut Self {
        let column = self.cell(name, || Values::Unsigned(Vec::new()));
        if let (Values::Unsigned(values), Some(value)) = (&mut column.values, value.into()) {
            // (The column is marked unsigned, so only the bits matter.)
            values.push(value as i64);
            column.there.push(1);
        }
        self
    }

    pub fn double(&mut self, name: &'static str, value: impl Into<Option<f64>>) -> &mut Self {
        let column = self.cell(name, || Values::Double(Vec::new()));
        if let (Values::Double(values), Some(value)) = (&mut column.values, value.into()) {
            values.push(value);
            column.there.push(1);
        }
        self
    }

    pub fn flag(&mut self, name: &'static str, value: impl Into<Option<bool>>) -> &mut Self {
        let column = self.cell(name, || Values::Flag(Vec::new()));
        if let (Values::Flag(values), Some(value)) = (&mut column.values, value.into()) {
            values.push(value);
            column.there.push(1);
        }
        self
    }

    pub fn text<'t>(&mut self, name: &'static str, value: impl Into<Option<&'t str>>) -> &mut Self {
        let value = value.into();
        self.table.text += value.map_or(0, str::len);
        let column = self.cell(name, || Values::Text(Vec::new()));
        if let (Values::Text(values), Some(value)) = (&mut column.values, value) {
            values.push(ByteArray::from(value));
            column.there.push(1);
        }
        self
    }

    /// The next column, with the row so far at null.
    fn cell(&mut self, name: &'static str, kind: impl FnOnce() -> Values) -> &mut Column {
        let (i, t) = (self.column, &mut *self.table);
        self.column += 1;
        if i == t.columns.len() {
            t.columns.push(Column { name, values: kind(), there: Vec::new() });
        }
        let column = &mut t.columns[i];
        debug_assert_eq!(column.name, name);
        // (Missing earlier rows of a column are null; a value adds this row's own mark.)
        column.there.resize(t.rows, 0);
        column
    }
}

impl Table {
    pub fn new(path: PathBuf, metadata: Arc<Vec<KeyValue>>) -> Table {
        Table { path, metadata, columns: Vec::new(), rows: 0, text: 0, count: 0, file: None }
    }

    /// Adds a row.
    pub fn push(&mut self, fill: impl FnOnce(&mut Row<'_>)) -> io::Result<()> {
        fill(&mut Row { table: self, column: 0 });
        self.rows += 1;
        self.count += 1;
        if self.rows == ROWS || self.text >= TEXT { self.group() } else { Ok(()) }
    }

    /// Writes the remaining rows. Returns the number of rows.
    pub fn close(mut self) -> io::Result<u64> {
        if self.rows > 0 {
            self.group()?;
        }
        if let Some(file) = self.file.take() {
            let file = file.into_inner().map_err(io_error)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        }
        Ok(self.count)
    }

    fn group(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(self.create()?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        write(file, &mut self.columns, self.rows).map_err(io_error)?;
        (self.rows, self.text) = (0, 0);
        Ok(())
    }

    fn create(&self) -> io::Result<SerializedFileWriter<BufWriter<File>>> {
        let columns = self.columns.iter().map(Column::schema).collect::<Result<Vec<_>, _>>();
        let schema = columns.and_then(|c| Type::group_type_builder("row").with_fields(c).build()).map_err(io_error)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("doorbell {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(self.metadata.to_vec()))
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true);
        for c in &self.columns {
            let path = ColumnPath::from(c.name);
            properties = match c.values {
                Values::Signed(_) | Values::Unsigned(_) => {
                    properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
                }
                Values::Text(_) => properties.set_column_dictionary_enabled(path, true),
                Values::Flag(_) => properties.set_column_encoding(path, Encoding::RLE),
                Values::Double(_) => properties,
            };
        }
        let out = BufWriter::with_capacity(1 << 16, File::create_new(&self.path)?);
        SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(io_error)
    }
}

impl Column {
    fn schema(&self) -> Result<Arc<Type>, ParquetError> {
        let (kind, logical) = match self.values {
            Values::Signed(_) => (Physical::INT64, None),
            Values::Unsigned(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Values::Double(_) => (Physical::DOUBLE, None),
            Values::Flag(_) => (Physical::BOOLEAN, None),
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let column = Type::primitive_type_builder(self.name, kind).with_repetition(Repetition::OPTIONAL);
        column.with_logical_type(logical).build().map(Arc::new)
    }
}

fn write<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    columns: &mut [Column],
    rows: usize,
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for c in columns {
        let Some(mut out) = group.next_column()? else { return Err(ParquetError::General("no such column".into())) };
        c.there.resize(rows, 0);
        let there = Some(&c.there[..]);
        match (out.untyped(), &mut c.values) {
            (ColumnWriter::Int64ColumnWriter(out), Values::Signed(values) | Values::Unsigned(values)) => {
                out.write_batch(values, there, None)?;
                values.clear();
            }
            (ColumnWriter::DoubleColumnWriter(out), Values::Double(values)) => {
                out.write_batch(values, there, None)?;
                values.clear();
            }
            (ColumnWriter::BoolColumnWriter(out), Values::Flag(values)) => {
                out.write_batch(values, there, None)?;
                values.clear();
            }
            (ColumnWriter::ByteArrayColumnWriter(out), Values::Text(values)) => {
                out.write_batch(values, there, None)?;
                values.clear();
            }
            _ => return Err(ParquetError::General(format!("column {} has another type", c.name))),
        }
        c.there.clear();
        out.close()?;
    }
    group.close().map(drop)
}

/// The error of the disk, if that is the cause.
fn io_error(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    #[test]
    fn groups_of_rows_are_of_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let rows = ROWS as u64 + 100;
        let mut table = Table::new(path.clone(), Arc::default());
        for n in 0..rows {
            let row = |out: &mut Row<'_>| {
                out.uint("n", (n % 3 > 0).then_some(n)).flag("even", n % 2 == 0).text("same", "text");
            };
            table.push(row).unwrap();
        }
        assert_eq!(table.close().unwrap(), rows);
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
        assert_eq!(groups, [ROWS as i64, 100]);
        let last = reader.get_row_group(1).unwrap().get_row_iter(None).unwrap().last().unwrap().unwrap();
        assert_eq!((last.get_ulong(0).unwrap(), last.get_bool(1).unwrap()), (rows - 1, (rows - 1).is_multiple_of(2)));
        // Long texts end a group, too.
        let path = dir.path().join("long.parquet");
        let (mut table, long) = (Table::new(path.clone(), Arc::default()), "x".repeat(TEXT / 2));
        for _ in 0..3 {
            let row = |out: &mut Row<'_>| {
                out.text("long", &*long);
            };
            table.push(row).unwrap();
        }
        table.close().unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_table_without_rows_has_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        assert_eq!(Table::new(path.clone(), Arc::default()).close().unwrap(), 0);
        assert!(!path.exists());
    }
}
