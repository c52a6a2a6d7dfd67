"use strict";
// Draws every figure of the page in the page's own colours, again whenever those or the width change.
(() => {
  const root = document.documentElement;
  const PHONE = 560; // narrower than this: no dragging (it would stop a thumb from scrolling), smaller type
  const PRINTED = 690; // the width of a sheet in CSS pixels: a drawing does not shrink by itself
  const plots = [...document.querySelectorAll(".plot")].map((box) => ({
    box,
    figure: JSON.parse(document.getElementById(box.id + "-data").textContent),
  }));

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // "var(--ink)" anywhere in a figure stands for the page's ink, which differs between light and dark.
  const coloured = (value) => {
    if (typeof value === "string") return value.replace(/^var\((--[a-z]+)\)$/, (_, name) => css(name));
    if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map(coloured);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, coloured(part)]));
    return value;
  };

  const axis = (own) => {
    const title = typeof own.title === "string" ? { text: own.title } : own.title;
    const colours = { gridcolor: css("--grid"), linecolor: css("--line"), zerolinecolor: css("--line") };
    const usual = { automargin: true, zeroline: false, tickcolor: css("--line"), separatethousands: true, minexponent: 6 };
    return { ...colours, ...usual, ...own, title: { standoff: 12, ...title } };
  };

  const legendLines = (data, width) => {
    const named = data.filter((trace) => trace.name && trace.showlegend !== false);
    const length = named.reduce((sum, trace) => sum + 56 + 7.2 * trace.name.length, 0);
    return named.length > 1 ? Math.ceil(length / width) : 0;
  };

  const layoutOf = (figure, data, width, height) => {
    const own = coloured(figure.layout || {});
    const phone = width < PHONE;
    const lines = legendLines(data, width);
    const legend = { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", ...own.legend };
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: css("--sans"), size: phone ? 12 : 13.5, color: css("--ink") },
      margin: { l: 8, r: phone ? 8 : 16, t: 12, b: 8 },
      hovermode: "x unified",
      hoverlabel: { bgcolor: css("--raised"), bordercolor: css("--line"), font: { color: css("--ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--muted"), activecolor: css("--accent") },
      showlegend: lines > 0,
      uirevision: "keep", // a zoom survives a change of colours
      separators: ".,",
      ...own,
      legend,
      width,
      height: Math.round(phone ? Math.min(height, Math.max(0.8 * width, 0.75 * height)) : height) + 22 * lines,
      dragmode: phone ? false : own.dragmode || "zoom",
    };
    const axes = Object.keys(own).filter((key) => /^[xy]axis\d*$/.test(key));
    for (const key of new Set(["xaxis", "yaxis", ...axes])) layout[key] = axis(own[key] || {});
    const spike = { spikecolor: css("--muted"), spikethickness: 1, spikedash: "solid" };
    layout.xaxis = { ...spike, showgrid: false, showline: true, ticks: "outside", ...layout.xaxis };
    return layout;
  };

  const configOf = (width) => ({
    displaylogo: false,
    displayModeBar: width < PHONE ? false : "hover",
    responsive: false, // redrawn below, with the legend and the type that fit the new width
    // Named one by one, so that no version brings a button that sends the data to somebody's cloud.
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    showSendToCloud: false,
    plotlyServerURL: "",
    toImageButtonOptions: { format: "svg" },
  });

  const draw = ({ box, figure }, forced) => {
    const width = forced || box.clientWidth;
    const data = coloured(figure.data || []);
    return Plotly.react(box, data, layoutOf(figure, data, width, Number(box.dataset.height)), configOf(width));
  };

  const drawAll = (width) => Promise.all(plots.map((plot) => draw(plot, width)));

  const start = async () => {
    for (const plot of plots) {
      await draw(plot);
      await new Promise((next) => setTimeout(next)); // let the page be read meanwhile
    }
    root.dataset.drawn = "yes";
    let seen = window.innerWidth;
    let waiting;
    window.addEventListener("resize", () => {
      if (window.innerWidth === seen) return; // a phone's address bar changes the height alone
      seen = window.innerWidth;
      clearTimeout(waiting);
      waiting = setTimeout(() => drawAll(), 80);
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
    window.addEventListener("beforeprint", () => { root.dataset.print = ""; drawAll(PRINTED); });
    window.addEventListener("afterprint", () => { delete root.dataset.print; drawAll(); });
  };
  start();
})();
