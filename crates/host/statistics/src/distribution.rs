//! The normal distribution and Student's t, as far as intervals and tests need them.

use std::f64::consts::{FRAC_2_PI, TAU};

/// The part of a standard normal distribution below `x`.
pub fn normal_cdf(x: f64) -> f64 {
    let (density, size) = ((-x * x / 2.0).exp() / TAU.sqrt(), x.abs());
    if size < 3.0 {
        // Abramowitz and Stegun 26.2.11: a series of positive terms.
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term.abs() > sum.abs() * 1e-17 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        return 0.5 + density * sum;
    }
    // 26.2.14: the continued fraction of the tail, from the inside out.
    let inside = (1..=60).rev().fold(size, |below, k| size + f64::from(k) / below);
    if x < 0.0 { density / inside } else { 1.0 - density / inside }
}

/// The value with the part `p`, between 0 and 1, of a standard normal distribution below it.
pub fn normal_quantile(p: f64) -> f64 {
    bisected(p, normal_cdf)
}

/// The part below `x` of Student's t distribution with `freedom` degrees of freedom.
pub fn student_cdf(x: f64, freedom: u32) -> f64 {
    // Abramowitz and Stegun 26.7.3 and 26.7.4: finite sums for whole numbers of degrees of freedom.
    let nu = f64::from(freedom);
    let angle = (x / nu.sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let (mut term, mut sum, mut k) = if odd { (cosine, cosine, 3) } else { (1.0, 1.0, 2) };
    while k + 1 < freedom {
        term *= cosine * cosine * f64::from(k - 1) / f64::from(k);
        sum += term;
        k += 2;
    }
    let within = match freedom {
        1 => FRAC_2_PI * angle,
        _ if odd => FRAC_2_PI * (angle + sine * sum),
        _ => sine * sum,
    };
    (1.0 + within) / 2.0
}

/// The value with the part `p`, between 0 and 1, of Student's t distribution below it.
pub fn student_quantile(p: f64, freedom: u32) -> f64 {
    bisected(p, |x| student_cdf(x, freedom))
}

/// Where a distribution function has the value `p`.
fn bisected(p: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    if p > 0.5 {
        // The lower half has more digits, and both distributions are symmetric.
        return -bisected(1.0 - p, cdf);
    }
    let (mut low, mut high) = (-1.0, 0.0);
    while cdf(low) > p && low > -1e12 {
        low *= 2.0;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if cdf(middle) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}
