//! PNG files with a palette: half of the bytes of those that Chromium writes, or fewer.

use anyhow::{Context, bail};
use png::{BitDepth, ColorType, Decoder, DeflateCompression, Encoder, Filter};
use std::collections::HashMap;
use std::io::Cursor;

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
    /// Eight bits a channel. A transparent pixel keeps its colour only.
    pub fn read(bytes: &[u8]) -> anyhow::Result<Picture> {
        let mut reader = Decoder::new(Cursor::new(bytes)).read_info().context("the head of a PNG")?;
        let channels = match reader.output_color_type() {
            (ColorType::Rgb, BitDepth::Eight) => 3,
            (ColorType::Rgba, BitDepth::Eight) => 4,
            (kind, depth) => bail!("a PNG of {kind:?}, {depth:?} bits: only 8-bit RGB and RGBA are read"),
        };
        let mut bytes = vec![0; reader.output_buffer_size().context("a PNG larger than the memory")?];
        let info = reader.next_frame(&mut bytes).context("the pixels of a PNG")?;
        let pixels = bytes.chunks_exact(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        Ok(Picture { width: info.width, height: info.height, pixels })
    }

    /// The colour at the left end of the first line.
    pub fn corner(&self) -> Colour {
        self.pixels.first().copied().unwrap_or_default()
    }

    /// A PNG file with a palette.
    pub fn packed(&self) -> anyhow::Result<Vec<u8>> {
        let palette = self.palette();
        let mut known: HashMap<Colour, u8> = HashMap::new();
        let indices = self.pixels.iter().map(|c| *known.entry(*c).or_insert_with(|| nearest(&palette, *c)));
        let indices: Vec<u8> = indices.collect();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(ColorType::Indexed);
        encoder.set_palette(palette.as_flattened());
        encoder.set_deflate_compression(DeflateCompression::Level(9));
        encoder.set_filter(Filter::NoFilter);
        encoder.write_header()?.write_image_data(&indices)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn made(colour: impl Fn(u32, u32) -> Colour) -> Picture {
        let (width, height) = (40, 30);
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| colour(x, y)).collect();
        Picture { width, height, pixels }
    }

    #[test]
    fn rgb_and_rgba_are_read_and_nothing_else() {
        let picture = made(|x, y| [(x * 7 + y) as u8, (x ^ y) as u8, (y * 91) as u8]);
        let written = |kind, bytes: &[u8]| {
            let mut file = Vec::new();
            let mut encoder = Encoder::new(&mut file, picture.width, picture.height);
            encoder.set_color(kind);
            encoder.write_header().unwrap().write_image_data(bytes).unwrap();
            file
        };
        let rgb = written(ColorType::Rgb, picture.pixels.as_flattened());
        let with_alpha: Vec<[u8; 4]> = picture.pixels.iter().map(|[r, g, b]| [*r, *g, *b, 9]).collect();
        for bytes in [&rgb, &written(ColorType::Rgba, with_alpha.as_flattened())] {
            assert_eq!(Picture::read(bytes).unwrap(), picture);
        }
        let grey = written(ColorType::Grayscale, &[0; 1200]);
        for damaged in [&b"GIF89a"[..], &rgb[..8], &rgb[..60], &grey] {
            assert!(Picture::read(damaged).is_err());
        }
    }

    /// The palette of a packed picture, and its indices.
    fn colours(bytes: &[u8]) -> (Vec<Colour>, Vec<u8>) {
        let mut reader = Decoder::new(Cursor::new(bytes)).read_info().unwrap();
        let palette = reader.info().palette.as_ref().unwrap().as_chunks().0.to_vec();
        let mut indices = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut indices).unwrap();
        (palette, indices)
    }

    #[test]
    fn few_colours_are_kept_and_of_many_the_most_frequent() {
        let few = made(|x, _| [x as u8, 0, 0]);
        let (palette, indices) = colours(&few.packed().unwrap());
        assert_eq!((palette.len(), indices.len()), (40, 40 * 30));
        assert!(indices.iter().zip(&few.pixels).all(|(n, pixel)| palette[usize::from(*n)] == *pixel));
        let many = made(|x, y| if y < 10 { [255, 0, 0] } else { [x as u8 * 6, y as u8 * 8, (x * y) as u8] });
        let (palette, indices) = colours(&many.packed().unwrap());
        assert!(palette.len() <= PALETTE && palette.len() > 100 && palette[0] == [255, 0, 0], "{}", palette.len());
        assert!(indices[..40].iter().all(|n| *n == 0), "the most frequent colour is the first");
    }
}
