//! The normal distribution, Student's t and Fisher's F, as far as intervals and tests need them.

use std::f64::consts::{FRAC_2_PI, PI, TAU};

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

/// What has the part `p`, between 0 and 1, of a standard normal distribution below it.
pub fn normal_quantile(p: f64) -> f64 {
    bisected(p, normal_cdf)
}

/// The part of Student's t distribution with `freedom` degrees of freedom below `x`.
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

/// What has the part `p`, between 0 and 1, of Student's t distribution below it.
pub fn student_quantile(p: f64, freedom: u32) -> f64 {
    bisected(p, |x| student_cdf(x, freedom))
}

/// The part of Fisher's F distribution, with these degrees of freedom of the two variances, above `x`.
pub fn fisher_tail(x: f64, (one, other): (u32, u32)) -> f64 {
    let (one, other) = (f64::from(one), f64::from(other));
    incomplete_beta(other / (other + one * x.max(0.0)), other / 2.0, one / 2.0)
}

/// The regularized incomplete beta function, `a` and `b` whole or half numbers.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    // Abramowitz and Stegun 26.5.8: the continued fraction, from the inside out. It converges fast on this side.
    let coefficient = |k: u32| {
        let m = f64::from(k / 2);
        match k % 2 {
            0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        }
    };
    let inside = (1..=200).rev().fold(1.0, |below, k| 1.0 + coefficient(k) / below);
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    front.exp() / (a * inside)
}

/// The logarithm of the gamma function of a whole or half number.
fn ln_gamma(z: f64) -> f64 {
    let half = z.fract() > 0.0;
    let (mut at, mut sum) = if half { (0.5, PI.sqrt().ln()) } else { (1.0, 0.0) };
    while at < z {
        sum += f64::ln(at);
        at += 1.0;
    }
    sum
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
