//! PNG files as Chromium writes them, and the same with a palette, which takes half of the bytes or fewer.

use anyhow::{Context, bail};
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::collections::HashMap;
use std::io::{Read, Write};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
const PALETTE: usize = 256;

/// Colours of the palette differ by more than this, summed over red, green and blue: nearer ones look the same.
const APART: u32 = 9;

pub type Colour = [u8; 3];

#[derive(Debug, PartialEq)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    pixels: Vec<Colour>,
}

impl Picture {
    /// Eight bits a channel, not interlaced. A transparent pixel keeps its colour only.
    pub fn read(bytes: &[u8]) -> anyhow::Result<Picture> {
        let mut rest = bytes.strip_prefix(SIGNATURE).context("it is not PNG")?;
        let (mut head, mut packed) = (None, Vec::new());
        while let Some((kind, data, after)) = chunk(rest) {
            match kind {
                b"IHDR" => head = Some(data),
                b"IDAT" => packed.extend_from_slice(data),
                _ => {}
            }
            rest = after;
        }
        let head: [u8; 13] = head.and_then(|head| head.try_into().ok()).context("a PNG without a head")?;
        let [w0, w1, w2, w3, h0, h1, h2, h3, depth, kind, _, _, interlaced] = head;
        let (width, height) = (u32::from_be_bytes([w0, w1, w2, w3]), u32::from_be_bytes([h0, h1, h2, h3]));
        let channels = match (depth, kind, interlaced) {
            (8, 2, 0) => 3,
            (8, 6, 0) => 4,
            _ => bail!("a PNG of depth {depth} and colour type {kind}: only 8-bit RGB and RGBA are read"),
        };
        let mut lines = Vec::new();
        ZlibDecoder::new(packed.as_slice()).read_to_end(&mut lines).context("the pixels of a PNG")?;
        let long = width as usize * channels;
        if width == 0 || height == 0 || lines.len() != (long + 1) * height as usize {
            bail!("a PNG of {width} x {height} pixels has {} bytes of them", lines.len());
        }
        let mut above = vec![0; long];
        let mut pixels = Vec::with_capacity(width as usize * height as usize);
        for line in lines.chunks_exact_mut(long + 1) {
            let (filter, line) = line.split_at_mut(1);
            unfilter(filter[0], line, &above, channels)?;
            pixels.extend(line.chunks_exact(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
            above.copy_from_slice(line);
        }
        Ok(Picture { width, height, pixels })
    }

    /// The colour at the left end of the first line.
    pub fn corner(&self) -> Colour {
        self.pixels.first().copied().unwrap_or_default()
    }

    /// A PNG file with a palette.
    pub fn packed(&self) -> anyhow::Result<Vec<u8>> {
        let palette = self.palette();
        let mut known: HashMap<Colour, u8> = HashMap::new();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        for line in self.pixels.chunks_exact(self.width as usize) {
            let indices = line.iter().map(|colour| *known.entry(*colour).or_insert_with(|| nearest(&palette, *colour)));
            let line: Vec<u8> = std::iter::once(0).chain(indices).collect();
            zlib.write_all(&line)?;
        }
        let mut head = Vec::new();
        head.extend_from_slice(&self.width.to_be_bytes());
        head.extend_from_slice(&self.height.to_be_bytes());
        head.extend_from_slice(&[8, 3, 0, 0, 0]);
        let mut bytes = SIGNATURE.to_vec();
        put(&mut bytes, b"IHDR", &head);
        put(&mut bytes, b"PLTE", palette.as_flattened());
        put(&mut bytes, b"IDAT", &zlib.finish()?);
        put(&mut bytes, b"IEND", &[]);
        Ok(bytes)
    }

    /// The most frequent colours that do not look the same.
    fn palette(&self) -> Vec<Colour> {
        let mut counts: HashMap<Colour, usize> = HashMap::new();
        for colour in &self.pixels {
            *counts.entry(*colour).or_default() += 1;
        }
        let mut colours: Vec<(Colour, usize)> = counts.into_iter().collect();
        colours.sort_by_key(|(colour, count)| (std::cmp::Reverse(*count), *colour));
        let apart = if colours.len() <= PALETTE { 0 } else { APART };
        let mut palette: Vec<Colour> = Vec::new();
        for (colour, _) in colours {
            if palette.len() < PALETTE && palette.iter().all(|one| distance(*one, colour) > apart) {
                palette.push(colour);
            }
        }
        palette
    }
}

fn distance(one: Colour, other: Colour) -> u32 {
    one.iter().zip(other).map(|(one, other)| u32::from(one.abs_diff(other))).sum()
}

fn nearest(palette: &[Colour], colour: Colour) -> u8 {
    let places = palette.iter().zip(0..=u8::MAX);
    places.min_by_key(|(one, _)| distance(**one, colour)).map_or(0, |(_, place)| place)
}

/// Kind and data of the first chunk, and what is after it.
fn chunk(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (long, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let (data, rest) = rest.split_at_checked(u32::from_be_bytes(*long) as usize)?;
    Some((kind, data, rest.get(4..)?))
}

fn put(bytes: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    let mut sum = Crc::new();
    sum.update(kind);
    sum.update(data);
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(kind);
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&sum.sum().to_be_bytes());
}

/// Takes the filter of a line away (PNG specification, section 9).
fn unfilter(filter: u8, line: &mut [u8], above: &[u8], channels: usize) -> anyhow::Result<()> {
    for n in 0..line.len() {
        let left = if n < channels { 0 } else { line[n - channels] };
        let (up, corner) = (above[n], if n < channels { 0 } else { above[n - channels] });
        let guess = match filter {
            0 => 0,
            1 => left,
            2 => up,
            3 => u8::midpoint(left, up),
            4 => paeth(left, up, corner),
            _ => bail!("a PNG with a line of the unknown filter {filter}"),
        };
        line[n] = line[n].wrapping_add(guess);
    }
    Ok(())
}

fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let all = i16::from(left) + i16::from(up) - i16::from(corner);
    let far = |one: u8| (all - i16::from(one)).abs();
    if far(left) <= far(up) && far(left) <= far(corner) {
        left
    } else if far(up) <= far(corner) {
        up
    } else {
        corner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RGB, each line with another filter.
    fn filtered(picture: &Picture) -> Vec<u8> {
        let long = picture.width as usize * 3;
        let mut above = vec![0; long];
        let mut lines = Vec::new();
        for (n, line) in picture.pixels.chunks_exact(picture.width as usize).enumerate() {
            let line = line.as_flattened();
            let filter = (n % 5) as u8;
            lines.push(filter);
            for at in 0..long {
                let (left, corner) = if at < 3 { (0, 0) } else { (line[at - 3], above[at - 3]) };
                let guess = match filter {
                    0 => 0,
                    1 => left,
                    2 => above[at],
                    3 => u8::midpoint(left, above[at]),
                    _ => paeth(left, above[at], corner),
                };
                lines.push(line[at].wrapping_sub(guess));
            }
            above.copy_from_slice(line);
        }
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&lines).unwrap();
        let mut head = [picture.width.to_be_bytes(), picture.height.to_be_bytes()].concat();
        head.extend_from_slice(&[8, 2, 0, 0, 0]);
        let mut bytes = SIGNATURE.to_vec();
        put(&mut bytes, b"IHDR", &head);
        put(&mut bytes, b"IDAT", &zlib.finish().unwrap());
        put(&mut bytes, b"IEND", &[]);
        bytes
    }

    fn made(colour: impl Fn(u32, u32) -> Colour) -> Picture {
        let (width, height) = (40, 30);
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| colour(x, y)).collect();
        Picture { width, height, pixels }
    }

    #[test]
    fn lines_of_every_filter_are_read() {
        let picture = made(|x, y| [(x * 7 + y) as u8, (x ^ y) as u8, (y * 91) as u8]);
        assert_eq!(Picture::read(&filtered(&picture)).unwrap(), picture);
        for damaged in [&b"GIF89a"[..], SIGNATURE, &filtered(&picture)[..60]] {
            assert!(Picture::read(damaged).is_err());
        }
    }

    /// The palette of a packed picture, and each line's filter and indices.
    fn colours(bytes: &[u8]) -> (Vec<Colour>, Vec<u8>) {
        let mut rest = bytes.strip_prefix(SIGNATURE).unwrap();
        let (mut palette, mut indices) = (Vec::new(), Vec::new());
        while let Some((kind, data, after)) = chunk(rest) {
            match kind {
                b"PLTE" => palette = data.as_chunks().0.to_vec(),
                b"IDAT" => {
                    ZlibDecoder::new(data).read_to_end(&mut indices).unwrap();
                }
                _ => {}
            }
            rest = after;
        }
        (palette, indices)
    }

    #[test]
    fn few_colours_are_kept_and_of_many_the_most_frequent() {
        let few = made(|x, _| [x as u8, 0, 0]);
        let (palette, indices) = colours(&few.packed().unwrap());
        assert_eq!((palette.len(), indices.len()), (40, 41 * 30));
        let lines = indices.chunks_exact(41).zip(few.pixels.chunks_exact(40));
        for (line, pixels) in lines {
            assert_eq!(line[0], 0, "no filter");
            assert!(line[1..].iter().zip(pixels).all(|(n, pixel)| palette[usize::from(*n)] == *pixel));
        }
        let many = made(|x, y| if y < 10 { [255, 0, 0] } else { [x as u8 * 6, y as u8 * 8, (x * y) as u8] });
        let (palette, indices) = colours(&many.packed().unwrap());
        assert!(palette.len() <= PALETTE && palette.len() > 100 && palette[0] == [255, 0, 0], "{}", palette.len());
        assert!(indices[1..41].iter().all(|n| *n == 0), "the most frequent colour is the first");
    }
}
