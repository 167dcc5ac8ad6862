"""Fits the coefficients in elman/kernels/activations.py and exponential.py: Remez exchange in 60-digit arithmetic.

    python tests/data/make_coefficients.py

Exponential: polynomial P with e^r = 1 + r + r^2 P(r) for |r| <= ln(2)/2, smallest largest relative error of e^r.
Hyperbolic tangent: rational A/B with tanh x = x + x^3 A(x^2)/B(x^2) for 0 <= x <= 0.625, likewise.
Logarithm: polynomial L with log z = 2 s + s^3 L(s^2), s = (z - 1)/(z + 1), for sqrt(1/2) <= z <= sqrt(2), likewise.

W. Fraser, A survey of methods of computing minimax and near-minimax polynomial approximations, J. ACM 12 (1965) 295.
"""

import mpmath as mp

mp.mp.dps = 60


def minimax(function, weight, numerator, denominator, low, high, samples=800):
    """Coefficients of A and B (B(0) = 1) that minimise max |weight(u) (A(u)/B(u) - function(u))| on [low, high].

    Returns (A, B without its leading 1, the error). Each round solves the equal-ripple equations on the reference
    points, then moves the points to the extrema of the error.
    """
    unknowns = numerator + denominator + 2
    chebyshev = [mp.cos(mp.pi * (2 * i + 1) / (2 * unknowns)) for i in range(unknowns)]
    points = sorted(low + (high - low) * (1 + c) / 2 for c in chebyshev)
    grid = [low + (high - low) * (1 - mp.cos(mp.pi * mp.mpf(i) / samples)) / 2 for i in range(samples + 1)]
    target = [(u, function(u), weight(u)) for u in grid]
    a, b, level = [], [mp.mpf(0)] * denominator, mp.mpf(0)
    for _ in range(60):
        a, b, level = equal_ripple(function, weight, points, numerator, denominator, b, level)
        error = [w * (evaluate(a, u) / evaluate([mp.mpf(1), *b], u) - f) for u, f, w in target]
        extrema = alternating_extrema(error, unknowns)
        worst = max(abs(e) for e in error)
        if worst <= abs(level) * mp.mpf("1.0001"):
            break
        points = [grid[i] for i in extrema]
    return a, b, worst


def evaluate(coefficients, u):
    value = mp.mpf(0)
    for c in reversed(coefficients):
        value = value * u + c
    return value


def equal_ripple(function, weight, points, numerator, denominator, b, level):
    """Solve A(u) = (f(u) + s E) B(u), s = +-1/weight, on the points; the product E B is lagged until E stands still."""
    n = len(points)
    for _ in range(50):
        matrix, right = mp.matrix(n, n), mp.matrix(n, 1)
        for i, u in enumerate(points):
            f, sign = function(u), (-1) ** i / weight(u)
            for j in range(numerator + 1):
                matrix[i, j] = u**j
            for j in range(denominator):
                matrix[i, numerator + 1 + j] = -(f + sign * level) * u ** (j + 1)
            tail = evaluate([mp.mpf(1), *b], u)
            matrix[i, n - 1] = -sign * tail
            right[i] = f + sign * level * (1 - tail)
        solution = mp.lu_solve(matrix, right)
        a = list(solution[: numerator + 1])
        b = list(solution[numerator + 1 : n - 1])
        moved, level = abs(solution[n - 1] - level), solution[n - 1]
        if moved <= abs(level) * mp.mpf(10) ** -20:
            break
    return a, b, level


def alternating_extrema(error, count):
    """Indices of the largest error in each run of one sign; the smaller end is dropped while there are too many."""
    runs = [[0]]
    for i in range(1, len(error)):
        if (error[i] > 0) != (error[runs[-1][0]] > 0):
            runs.append([])
        runs[-1].append(i)
    peaks = [max(run, key=lambda i: abs(error[i])) for run in runs]
    while len(peaks) > count:
        peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
    if len(peaks) < count:
        raise RuntimeError("the error does not alternate often enough: use more samples")
    return peaks


def exponential(degree):
    """P of the given degree; the returned error is that of e^r, relative."""
    limit = mp.log(2) / 2 * mp.mpf("1.001")

    def function(r):
        return (mp.expm1(r) - r) / r**2 if abs(r) > mp.mpf(10) ** -18 else mp.mpf(1) / 2 + r / 6

    return minimax(function, lambda r: max(r * r, mp.mpf(10) ** -3) * mp.exp(-r), degree, 0, -limit, limit)


def tangent(numerator, denominator):
    """A and B of the given degrees in u = x^2; the returned error is that of tanh, relative."""

    def ratio(u):
        return mp.tanh(mp.sqrt(u)) / mp.sqrt(u)

    def function(u):
        return (ratio(u) - 1) / u if u > mp.mpf(10) ** -24 else -mp.mpf(1) / 3 + 2 * u / 15

    def weight(u):
        u = max(u, mp.mpf(10) ** -4)
        return u / ratio(u)

    return minimax(function, weight, numerator, denominator, mp.mpf(0), mp.mpf("0.625") ** 2)


def logarithm(degree):
    """L of the given degree in u = s^2; the returned error is that of log z, relative."""
    largest = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")

    def function(u):
        s = mp.sqrt(u)
        return (2 * mp.atanh(s) - 2 * s) / s**3 if u > mp.mpf(10) ** -24 else mp.mpf(2) / 3 + 2 * u / 5

    def weight(u):
        s = mp.sqrt(max(u, mp.mpf(10) ** -4))
        return s**3 / (2 * mp.atanh(s))

    return minimax(function, weight, degree, 0, mp.mpf(0), largest)


def main():
    for name, degree, ratio in (("float32", 4, (1, 1)), ("float64", 10, (2, 3))):
        p, _, error = exponential(degree)
        print(name, "exp ", f"error 2^{mp.nstr(mp.log(error, 2), 4)}")
        print("   P", [mp.nstr(c, 20) for c in p])
        a, b, error = tangent(*ratio)
        print(name, "tanh", f"error 2^{mp.nstr(mp.log(error, 2), 4)}")
        print("   A", [mp.nstr(c, 20) for c in a])
        print("   B", ["1.0"] + [mp.nstr(c, 20) for c in b])
    a, _, error = logarithm(6)
    print("float64 log ", f"error 2^{mp.nstr(mp.log(error, 2), 4)}")
    print("   L", [mp.nstr(c, 20) for c in a])


if __name__ == "__main__":
    main()
