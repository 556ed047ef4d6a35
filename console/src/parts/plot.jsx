// A line over time. Numbers are beside it, so the picture itself is only a picture.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "../format.js";

const HEIGHT = 120;

export function Plot({ title, series, show = (value) => String(value) }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const { times, lines } = join(series);
  const names = series.map((one) => one.name).join("\n");
  useLayoutEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const inks = ["live", "cap", "trim", "ttl", "lost", "deleted"].map(colour);
    const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [4, 4]];
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options = {
      width: Math.max(frame.current.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 8, 0, 0],
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, space: 90, size: 26, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000).slice(0, 8)) }, { ...axis, size: 62, space: 26, values: (_, ticks) => ticks.map(show) }],
      series: [{}, ...series.map((one, index) => ({ stroke: inks[index % inks.length], dash: dashes[index % dashes.length], width: 2, label: one.name, points: { show: false } }))],
    };
    plot.current = new uPlot(options, [times, ...lines], frame.current);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(frame.current.clientWidth, 100), height: HEIGHT }));
    observer.observe(frame.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [names]);
  useEffect(() => plot.current?.setData([times, ...lines]));
  return (
    <figure class="plot">
      <figcaption>
        <b>{title}</b>
        {series.map((one, index) => (
          <span class={`line line-${index % 6}`}>{series.length > 1 && `${one.name} `}<output>{one.points.length ? show(one.points[one.points.length - 1][1]) : "–"}</output></span>
        ))}
      </figcaption>
      <div ref={frame} aria-hidden="true" class={times.length ? "plot-frame" : "plot-frame empty-plot"} />
    </figure>
  );
}

// One row of times for all lines; where a line has nothing to say, it has a gap.
function join(series) {
  const all = [...new Set(series.flatMap((one) => one.points.map(([time]) => time)))].sort((a, b) => a - b);
  const lines = series.map((one) => {
    const known = new Map(one.points);
    return all.map((time) => known.get(time) ?? null);
  });
  return { times: all.map((time) => time / 1000), lines };
}
