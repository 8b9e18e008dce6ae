"""Your own table: a CSV file and a schema become batches for your model. `python examples/own_table.py`"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

import labkit
from labkit.data.clicks import ClickBatches, click_metrics, load_clicks

SCHEMA = """label = { column = "bought", positive = ["yes"], negative = ["no"] }
dense = ["age"]
categorical = ["city"]"""
draw = np.random.default_rng(0)  # stands in for your data: older people and people in Aarhus buy more often
shop = pd.DataFrame({"age": draw.integers(18, 80, 8000), "city": draw.choice(["Aarhus", "Bern", "Cork"], 8000)})
shop["bought"] = np.where(draw.random(8000) < shop["age"] / 160 + 0.4 * (shop["city"] == "Aarhus"), "yes", "no")
folder = Path(tempfile.mkdtemp())
shop.to_csv(folder / "shop.csv", index=False)
(folder / "shop.toml").write_text(SCHEMA)
# The table is prepared once: rows are checked and split, cities numbered.
log = load_clicks(folder / "shop.csv", schema=folder / "shop.toml")
print(log)
train, validation = log.split("train"), log.split("validation")
dense, rows = torch.tensor(validation.dense), torch.tensor(validation.categorical)
cities, age = nn.EmbeddingBag(log.table_rows[0], 1, mode="sum"), nn.Linear(1, 1)
optimizer = torch.optim.Adam([*cities.parameters(), *age.parameters()], lr=0.01)

with labkit.Run("own-table", target="auc >= 0.75", config={"lr": 0.01}) as run:
    for _ in run.epochs(20):
        for x, city, bought in run.batches(ClickBatches(train, batch_size=128, seed=0)):
            loss = F.binary_cross_entropy_with_logits((age(x) + cities(city[:, 0])).flatten(), bought)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, samples=len(bought))
        run.evaluate(**click_metrics(validation.label, (age(dense) + cities(rows[:, 0])).detach().numpy().ravel()))
