// The last minutes of numbers that the server only tells as they are now: rates and lags, as long as the page is open.
const KEPT = 120;

export class Series {
  constructor(kept = KEPT) {
    this.kept = kept;
    this.byName = new Map();
  }

  add(name, time, value) {
    let points = this.byName.get(name);
    if (!points) {
      points = [];
      this.byName.set(name, points);
      // Pages come and go: forget those that were not seen for longest.
      if (this.byName.size > 2000) this.byName.delete(this.byName.keys().next().value);
    }
    if (points.length && points[points.length - 1][0] >= time) return;
    points.push([time, value]);
    if (points.length > this.kept) points.shift();
  }

  points(name) {
    return this.byName.get(name) ?? [];
  }

  // What a counter grew by, per second.
  rates(name) {
    const points = this.points(name);
    return points.slice(1).map(([time, value], index) => {
      const [before, old] = points[index];
      return Math.max(0, ((value - old) * 1000) / (time - before));
    });
  }
}

export const heads = new Series();
export const lags = new Series(600);
export const forwarded = new Series();
